"""What Amazon S3 promises about conditional writes. Read on 29 November 2026.

- Key: the object's own name. A write with `If-None-Match: *` succeeds only if the bucket has
  no object of that name; else it is answered 412 (API reference, "PutObject").
- Scope: the bucket.
- Retention: as long as the object exists. A deleted object may be created again, also one
  under a delete marker (User Guide, "How to prevent object overwrites with conditional
  writes").
- Mismatch: another body under the name is 412 as well; S3 does not compare.
- In flight: a conflicting write at the same time is 409 ConditionalRequestConflict, and to be
  sent again (API reference, "PutObject").
- Look-up: `HeadObject`, strongly consistent after a write (User Guide, "What is Amazon S3?",
  data consistency model). Without `s3:ListBucket` a missing object is answered 403 instead of
  404 (API reference, "HeadObject").
"""

from datetime import timedelta
from typing import Final

from tools.declarations import Provider

# The longest that can be declared: the name is taken for as long as the object exists.
WHILE_IT_EXISTS: Final = timedelta(days=36_500)

AWS_S3: Final = Provider(
    name="aws_s3",
    idempotency_support="natural_id",
    idempotency_scope="bucket",
    idempotency_retention=WHILE_IT_EXISTS,
    lookup="by_key",
    settle_window=timedelta(minutes=15),
)
