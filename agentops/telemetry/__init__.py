"""Spans for OpenTelemetry: what a run did and when, beside what calls it and what it calls.

Reading order: `ids`, `describing`, `recording`, `exporting`. Nothing here is loaded, and nothing is
recorded, unless OTEL_EXPORTER_OTLP_ENDPOINT names a collector. The truth about a run is its
journal: spans are sampled, bounded, and lost with a process that is killed.
"""
