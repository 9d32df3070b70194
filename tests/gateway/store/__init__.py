"""`AGENTOPS_APPS=tests.gateway.store` gives a web process the tools of these tests."""
