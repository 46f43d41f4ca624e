"""Secure aggregation: the server learns the sum of the uploads, and none of them."""
