"""An app whose tools agents of other frameworks call through the gateway."""
