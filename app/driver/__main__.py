"""``python -P -m app.driver``: a driver with Spark; it reads the same environment variables as the service.

The JVM starts first, while Python imports the modules that use it. A spare starts no JVM until it becomes the driver.
"""

import logging
import os
import sys
from functools import partial

from app.driver.session_start import SessionStart
from app.settings.effective_settings import load_settings

if __name__ == "__main__":
    begun = None
    if "--help" not in sys.argv and "-h" not in sys.argv:
        # As in ``entry``: no other user may read what the JVM writes, and py4j logs every message that it sends at INFO.
        os.umask(0o077)
        logging.getLogger("py4j").setLevel(logging.WARNING)
        begun = SessionStart(load_settings())
        if "--spare" in sys.argv:
            begun.prepare()
        else:
            begun.begin()
    from app.driver.entry import main
    from app.driver.launches.spark_runner import SparkRunner

    main(partial(SparkRunner, begun=begun), begun.begin if begun is not None else None)
