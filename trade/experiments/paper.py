"""The paper's numbers, for tables that stand beside them."""

# Appendix C, Table 6: KL at c, of the best model by validation NLL.
GAUSSIAN_MIXTURE_CONDITIONS = (4.8330, 2.9764, 1.8330, 1.1288, 1.0, 0.8859, 0.5456, 0.3360, 0.2069)
GAUSSIAN_MIXTURE_KL = {
    "trade-grid": (0.011482, 0.009177, 0.006239, 0.003704, 0.004421, 0.004042, 0.013757, 0.035, 0.08647),
    "trade-continuous": (0.011761, 0.00746, 0.005112, 0.002825, 0.003702, 0.003906, 0.013047, 0.03706, 0.08707),
    "maximum-likelihood": (0.58906, 0.37628, 0.14435, 0.022951, 0.019051, 0.032336, 0.16599, 0.46467, 0.92979),
    "reverse-kl": (9.19012, 6.45853, 4.63207, 3.56005, 3.37188, 3.08986, 2.90968, 2.78683, 2.75597),
    "maximum-likelihood-reverse-kl": (0.32929, 0.229, 0.11099, 0.04906, 0.049896, 0.06853, 0.14625, 0.34991, 0.74761),
    "reweighting": (0.11298, 0.09674, 0.09815, 0.07873, 0.07396, 0.074053, 0.06681, 0.16942, 0.52953),
    "volume-preserving": (0.80099, 0.55106, 0.26806, 0.11362, 0.09766, 0.05473, 0.09508, 0.15019, 0.2335),
}

# Section 5.1, Table 1: NLL at T = 0.5 and 1, ESS at T = 0.5 and 1.
_MULTIWELL = {
    "maximum-likelihood": (2.81, 4.37, 0.422, 0.988),
    "reverse-kl": (2.29, 4.40, 0.841, 0.923),
    "reweighting": (2.23, 4.37, 0.913, 0.989),
    "temperature-steerable": (2.45, 4.45, 0.695, 0.817),
    "trade-grid-no-causality": (11.3, 5.79, 0.0, 0.103),
    "trade-grid-energy-free": (5.15, 4.58, 0.002, 0.637),
    "trade-continuous-boundary-model-energy-free": (13.45, 9.2, 0.001, 0.006),
    "trade-continuous-data": (2.57, 4.63, 0.427, 0.599),
    "trade-continuous-data-energy-free": (2.65, 4.48, 0.345, 0.784),
    "trade-continuous-boundary-model": (2.27, 4.38, 0.811, 0.97),
    "trade-continuous": (2.22, 4.36, 0.967, 0.993),
    "trade-continuous-energy-free": (2.22, 4.37, 0.956, 0.992),
    "trade-grid": (2.25, 4.37, 0.896, 0.979),
}
MULTIWELL = {name: {"nll": {0.5: a, 1.0: b}, "ess": {0.5: c, 1.0: d}} for name, (a, b, c, d) in _MULTIWELL.items()}

# Section 5.3, Table 2: NLL at 300 K and 600 K, and D_hist, on data of an old leapfrog integrator.
_ALANINE_DIPEPTIDE = {
    "backward-kl-affine": (-136.6067, -143.5167, 0.1726, 0.0438),
    "steerable-affine": (-159.12, -144.35, 0.1707, 0.0331),
    "trade-affine": (-159.8333, -144.4567, 0.1402, 0.0353),
    "backward-kl-spline": (-160.7967, -145.1533, 0.3982, 0.0321),
    "steerable-spline": (-157.36, -145.14, 0.1813, 0.02),
    "trade-spline": (-161.1633, -145.19, 0.0291, 0.0077),
}
ALANINE_DIPEPTIDE = {
    name: {"nll_leapfrog": {300.0: a, 600.0: b}, "d_hist": {300.0: c, 600.0: d}}
    for name, (a, b, c, d) in _ALANINE_DIPEPTIDE.items()
}
