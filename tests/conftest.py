"""What all tests share: hypothesis draws the same examples in every run, and torch sums on one thread."""

import hypothesis
import torch

hypothesis.settings.register_profile("same_examples", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("same_examples")
torch.set_num_threads(1)
