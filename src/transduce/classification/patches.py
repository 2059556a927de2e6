"""The front end for images (ViT): square patches as tokens, after a class token. It mixes positions of a segment."""

import torch
from torch import Tensor, nn

from transduce.config import require
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.nn.dropout import Dropout
from transduce.nn.linear import projections
from transduce.nn.segments import Segments


class Patches(nn.Module):
    """Images of H x W pixels to H W / P^2 vectors of patches, each projected, after the vector of the class token."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.height, self.width, self.channels = config.image_height, config.image_width, config.channels
        require(min(self.height, self.width) > 0, "a model that reads images needs image_height and image_width")
        self.size = config.patch_size
        self.count = (self.height // self.size) * (self.width // self.size)
        self.project = projections(self.channels * self.size**2, [config.d_model])
        self.class_token_D = nn.Parameter(torch.randn(config.d_model) * 0.02)
        self.positions_TD = nn.Parameter(torch.randn(self.count + 1, config.d_model) * 0.02)
        self.dropout = Dropout(config.dropout)

    def forward(self, pixel_N: Tensor, _: Segments) -> tuple[Tensor, Segments]:
        """The pixels of equal images, packed row by row with their channels, as bytes; 0 to 255 become -1 to 1."""
        pixels_BHWC = pixel_N.view(-1, self.height, self.width, self.channels)
        return self.embed(pixels_BHWC.to(self.project.weight.dtype) / 127.5 - 1)

    def embed(self, pixels_BHWC: Tensor) -> tuple[Tensor, Segments]:
        """Images of real numbers to vectors."""
        size = self.size
        patches_BTX = (
            pixels_BHWC.unflatten(1, (-1, size))
            .unflatten(3, (-1, size))
            .permute(0, 1, 3, 5, 2, 4)
            .flatten(3)
            .flatten(1, 2)
        )  # rows of patches, patches of a row, then channels, rows and columns of a patch
        B = len(patches_BTX)
        class_B1D = self.class_token_D.expand(B, 1, -1)
        x_BTD = torch.cat([class_B1D, self.project(patches_BTX.flatten(0, 1)).unflatten(0, (B, -1))], dim=1)
        x_ND = self.dropout(x_BTD + self.positions_TD).flatten(0, 1)
        T = self.count + 1
        offsets_B1 = torch.arange(0, (B + 1) * T, T, dtype=torch.int32, device=x_ND.device)
        return x_ND, Segments(offsets_B1, T, B * T)
