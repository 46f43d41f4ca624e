"""What a user gets for a mistake."""


class InputError(ValueError):
    """A user's mistake, said in one sentence with the value and the remedy; the command line exits with 2."""
