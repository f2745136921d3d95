"""The stand-in Hub for every test of this folder; another folder's conftest takes it likewise."""

from tests.hub.running import connect as connect
from tests.hub.running import hub as hub
from tests.hub.running import only_hub as only_hub
