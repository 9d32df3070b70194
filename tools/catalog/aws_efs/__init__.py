"""Amazon EFS file systems, created once per creation token."""

from tools.catalog.aws_efs.provider import AWS_EFS
from tools.catalog.aws_efs.tool import FileSystem, create_file_system_tool

__all__ = ["AWS_EFS", "FileSystem", "create_file_system_tool"]
