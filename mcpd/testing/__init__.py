"""For tests of servers and stores: an in-process client without a network, and the contract of a store."""

from mcpd.testing import store_contract as store_contract
from mcpd.testing.client import Client as Client
from mcpd.testing.client import ToolResult as ToolResult
from mcpd.testing.client import connect as connect
