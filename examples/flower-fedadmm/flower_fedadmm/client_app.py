"""The nodes' app."""

from fedadmm.flower import client_app
from flower_fedadmm.task import data, model

app = client_app(model=model, data=data)
