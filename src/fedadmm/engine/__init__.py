"""How client updates are run."""
