"""torch 2.13.0, CPU: the gradient of a bias is added row by row in the type of dy."""

import torch

torch.set_num_threads(1)
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for rows in (256, 4096, 65536):
        x = torch.randn(rows, 8).to(dtype)
        weight, bias = torch.ones(8, dtype=dtype), torch.zeros(8, dtype=dtype, requires_grad=True)
        y = torch.nn.functional.layer_norm(x, [8], weight, bias)
        y.backward(torch.full_like(y, 0.5))
        print(f"{dtype}, {rows} rows of dy = 0.5: {bias.grad[0].item():g}, exact {rows / 2:g}")
assert bias.grad[0].item() < rows / 4, "not reproduced"
