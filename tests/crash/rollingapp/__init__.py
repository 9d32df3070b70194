"""An app whose agents come in versions: `ROLLING_VERSION` says which one this process has."""
