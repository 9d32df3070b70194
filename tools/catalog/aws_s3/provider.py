"""What Amazon S3 promises about conditional writes. Read on 29 November 2026.

    key scope    the bucket: with `If-None-Match: *` a write succeeds only if it has no object of
                 that name (API reference, "PutObject")
    retention    as long as the object exists; a deleted one may be created again, also under a
                 delete marker (User Guide, "How to prevent object overwrites with conditional
                 writes")
    mismatch     412 whatever the body is: S3 compares nothing (the same page)
    in flight    409 ConditionalRequestConflict for a conflicting write at the same time
                 (API reference, "PutObject")
    look-up      HeadObject, consistent right after a write (User Guide, "What is Amazon S3?",
                 data consistency model); without `s3:ListBucket` a missing object is answered
                 403 instead of 404 (API reference, "HeadObject")

Guarantees: nothing beyond S3 itself.
Does not hold for a store that only speaks S3's protocol: the tool author's kit finds that out.
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
