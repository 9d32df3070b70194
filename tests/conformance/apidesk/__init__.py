"""What the web process of the API's conformance test serves."""
