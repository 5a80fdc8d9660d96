"""Private parts of Keras. Made for Keras 3.12 to 3.16.

``check`` refuses a version that lacks one that ``fit`` needs, before anything starts. ``internals``, ``patches``,
``penalties``, ``saving`` and ``tensorflow_moments`` import Keras; the other modules don't.
"""
