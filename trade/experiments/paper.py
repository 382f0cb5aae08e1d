"""The paper's numbers, for tables that stand beside them."""

# Appendix C, Table 6: KL at c, of the best model by validation NLL.
GAUSSIAN_MIXTURE_CONDITIONS = (4.8330, 2.9764, 1.8330, 1.1288, 1.0, 0.8859, 0.5456, 0.3360, 0.2069)
GAUSSIAN_MIXTURE_KL = {
    "trade-grid": (0.011482, 0.009177, 0.006239, 0.003704, 0.004421, 0.004042, 0.013757, 0.035, 0.08647),
    "trade-continuous": (0.011761, 0.00746, 0.005112, 0.002825, 0.003702, 0.003906, 0.013047, 0.03706, 0.08707),
    "maximum-likelihood": (0.58906, 0.37628, 0.14435, 0.022951, 0.019051, 0.032336, 0.16599, 0.46467, 0.92979),
}

# Section 5.1, Table 1: NLL and ESS at T = 0.5 and 1.0.
MULTIWELL = {
    "trade-continuous": {"nll": {0.5: 2.22, 1.0: 4.36}, "ess": {0.5: 0.967, 1.0: 0.993}},
    "trade-grid": {"nll": {0.5: 2.25, 1.0: 4.37}, "ess": {0.5: 0.896, 1.0: 0.979}},
}
