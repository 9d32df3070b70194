"""What Amazon EFS promises about creation tokens. Read on 29 November 2026.

    key scope    the AWS account in one region; `CreationToken` takes 64 ASCII characters, so the
                 operation's id fits (API reference, "CreateFileSystem")
    retention    as long as the file system exists: the token is compared with existing ones
                 (the same page)
    mismatch     FileSystemAlreadyExists (409) with the existing id; EFS does not compare the
                 other parameters (the same page)
    look-up      DescribeFileSystems by token (API reference, "DescribeFileSystems")

Guarantees: nothing beyond EFS itself.
Does not notice that a file system was deleted: its token is then free again.
"""

from datetime import timedelta
from typing import Final

from tools.declarations import Provider

# The longest that can be declared: the token is known for as long as the file system exists.
WHILE_IT_EXISTS: Final = timedelta(days=36_500)

AWS_EFS: Final = Provider(
    name="aws_efs",
    idempotency_support="key",
    idempotency_scope="account and region",
    idempotency_retention=WHILE_IT_EXISTS,
    lookup="by_key",
    settle_window=timedelta(minutes=15),
)
