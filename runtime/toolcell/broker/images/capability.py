"""`images.resize` of one run.

Owns the checks that need no decoder. The decoding is a worker's.
"""

from typing import TYPE_CHECKING

from toolcell.broker.call import Call, Refusal
from toolcell.broker.images.header import MAX_PIXELS, read_header
from toolcell.broker.interface import Image, ImagesResize
from toolcell.errors import Status

if TYPE_CHECKING:
    from toolcell.broker.services import BrokerServices

__all__ = ["ImagesCapability"]


class ImagesCapability:
    """The call. Keeps nothing."""

    def __init__(self, services: "BrokerServices") -> None:
        self._workers = services.images

    def resize(self, call: Call, params: ImagesResize) -> Image:
        """Serves `images.resize`."""
        header = read_header(params.data)
        call.target = header.format
        if params.width * params.height > MAX_PIXELS:
            raise Refusal(
                "pixels",
                f"{params.width} x {params.height} pixels are asked for; "
                f"the limit is {MAX_PIXELS} in all",
                status=Status.TOO_LARGE,
                details={"allowed": MAX_PIXELS, "used": params.width * params.height},
            )
        made = self._workers.resize(call, params.data, (params.width, params.height), params.format)
        return Image(data=made.data, width=made.width, height=made.height, format=params.format)

    def close(self) -> None:
        """Nothing is kept."""
