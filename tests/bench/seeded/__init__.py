"""Pages beside a million runs: a database filled with COPY, and how long each page takes there."""
