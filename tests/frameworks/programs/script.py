"""Becomes the shell of the how-to page, with the page's script in it."""

import os
import sys

from tests.frameworks.programs.pages import blocks

if __name__ == "__main__":
    os.execvp("bash", ["bash", "-c", blocks("use-from-rest", "bash"), *sys.argv[1:]])
