"""Where the classifier was before there were others (``linear.py``, ``classifiers.py``)."""

from tacit.learn.centring import scaled_down
from tacit.learn.classifiers import PrivateLogisticRegression, public_classes
from tacit.learn.linear import adopt, adopt_result, prepare

__all__ = [
    "PrivateLogisticRegression",
    "adopt",
    "adopt_result",
    "prepare",
    "public_classes",
    "scaled_down",
]
