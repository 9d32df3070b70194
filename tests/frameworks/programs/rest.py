"""Two programs without a framework: the how-to page's, and the same one by hand."""

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.frameworks.programs import task
from tests.frameworks.programs.pages import module_of

REFUNDS = [(one["order_id"], one["amount"]) for answer in task.ANSWERS for one in answer]


def work_by_hand(job: str) -> None:
    for number, (order_id, amount) in enumerate(REFUNDS):
        task.refund_by_hand(order_id, amount, key=f"{job}:{number}")


if __name__ == "__main__":
    _, job = sys.argv
    page = module_of("use-from-rest")
    with ThreadPoolExecutor() as threads:
        bare = threads.submit(work_by_hand, job)
        guarded = threads.submit(page.work, job, REFUNDS)
        bare.result()
        print(len(guarded.result()), task.LAST_WORDS)
