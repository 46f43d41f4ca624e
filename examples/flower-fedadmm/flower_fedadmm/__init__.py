"""FedADMM on Flower."""
