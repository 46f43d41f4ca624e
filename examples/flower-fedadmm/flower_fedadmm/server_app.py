"""The server's app."""

from fedadmm.flower import server_app
from flower_fedadmm.task import model, test

app = server_app(model=model, test=test)
