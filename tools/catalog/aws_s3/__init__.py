"""Objects in Amazon S3, created and never overwritten."""

from tools.catalog.aws_s3.provider import AWS_S3
from tools.catalog.aws_s3.tool import StoredObject, put_object_tool

__all__ = ["AWS_S3", "StoredObject", "put_object_tool"]
