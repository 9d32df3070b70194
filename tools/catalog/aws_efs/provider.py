"""What Amazon EFS promises about creation tokens. Read on 29 November 2026.

- Key: `CreationToken`, up to 64 ASCII characters; the operation's id fits (API reference,
  "CreateFileSystem").
- Scope: the AWS account in one region.
- Retention: as long as the file system exists. After its deletion the token creates a new
  one (same page: the token is compared with existing file systems).
- Mismatch: the same token with other parameters is answered FileSystemAlreadyExists (409)
  with the existing id; EFS does not compare.
- Look-up: `DescribeFileSystems` by `CreationToken` (API reference, "DescribeFileSystems").
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
