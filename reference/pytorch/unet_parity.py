"""One forward and backward pass of the U-Net on given weights and inputs, written down to be compared with the trainer's.

    unet_parity.py --make-weights 1 --weights W.safetensors           random non-zero weights in every tensor
    unet_parity.py --make-inputs 2 --batch 4 --inputs I.safetensors   x0 [n, 3, h, w], t [n], noise [n, 3, h, w]
    unet_parity.py --weights W.safetensors --inputs I.safetensors --out O.safetensors [--dtype bf16 | --double]

O holds `pred` [n, 3, h, w], `loss` [1] and `grad.<parameter>` for each parameter, fp32 (float64 of --double), in PyTorch's
shapes. x0 may be uint8, NHWC or NCHW. fp32 is without TF32; bf16 is autocast with fp32 master weights; --double is the
whole network in float64. Attention is the explicit one throughout, without checkpointing.
"""

import sys

import numpy_and_torch  # noqa: F401

import numpy
import torch

import unet
import unet_common as common
from unet_diffusion import Noising, loss_of


def passes(model, batch, device, dtype):
    """{"pred", "loss", "grad.<name>"} of x0, t and noise; dtype is "fp32", "bf16" or "double", the model in its own."""
    held = torch.float64 if dtype == "double" else torch.float32
    x0, noise = (batch[name].to(device, held) for name in ("x0", "noise"))
    t = batch["t"].to(device)
    x_t = Noising(device, held)(x0, t, noise)
    model.zero_grad(set_to_none=True)
    with common.precision(device, "fp32" if dtype == "double" else dtype):
        pred = model(x_t, t)
    loss = loss_of(pred, noise)
    loss.backward()
    gradients = {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"pred": pred.detach().to(held), "loss": loss.detach().reshape(1), **gradients}


def load_inputs(path, config):
    tensors, _ = common.load_tensors(path)
    missing = [name for name in ("x0", "t", "noise") if name not in tensors]
    if missing:
        raise common.Refusal(f"{path} has no {', '.join(missing)}")
    batch = {"x0": common.images_of(tensors["x0"]), "t": tensors["t"].long(), "noise": tensors["noise"].float()}
    shape = (len(batch["t"]), config.in_channels, config.image_size, config.image_size)
    for name in ("x0", "noise"):
        if tuple(batch[name].shape) != shape:
            raise common.Refusal(f"{path}: {name} is {list(batch[name].shape)}, the configuration wants {list(shape)}")
    return batch


def main(arguments=None):
    parser = common.parser_of(__doc__.splitlines()[0])
    parser.add_argument("--weights", help="safetensors; read, or written by --make-weights")
    parser.add_argument("--inputs", help="safetensors; read, or written by --make-inputs")
    parser.add_argument("--out", help="safetensors")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--double", action="store_true", help="float64 of the whole network")
    parser.add_argument("--make-weights", type=int, metavar="SEED")
    parser.add_argument("--make-inputs", type=int, metavar="SEED")
    parser.add_argument("--batch", type=int, default=4, help="images that --make-inputs makes (default 4)")
    options = parser.parse_args(arguments)
    config = unet.CONFIGS[options.config]
    for made, path in (("make_weights", "weights"), ("make_inputs", "inputs")):
        if getattr(options, made) is not None and not getattr(options, path):
            parser.error(f"--{made.replace('_', '-')} needs --{path}: where to write it")
    if options.make_weights is None and options.make_inputs is None and not options.out:
        parser.error("--out, --make-weights or --make-inputs: what to do")
    if options.out and not (options.weights and options.inputs):
        parser.error("--out needs --weights and --inputs")
    if options.double and options.dtype != "fp32":
        parser.error("--double is a precision of its own: leave --dtype out")
    return common.run(work, options, config)


def work(options, config):
    if options.make_weights is not None:
        model = unet.UNet(config)
        common.randomise(model, options.make_weights)
        common.save_tensors(options.weights, model.state_dict(), config.metadata())
    if options.make_inputs is not None:
        drawn = numpy.random.default_rng(options.make_inputs)
        common.save_tensors(options.inputs, common.random_batch(drawn, options.batch, config.image_size))
    if not options.out:
        return 0
    device = common.device_of(options)
    common.exact_fp32()
    model = unet.UNet(config, explicit_attention=True)
    common.load_weights(model, options.weights)
    dtype = "double" if options.double else options.dtype
    model.to(device, torch.float64 if options.double else torch.float32)
    outputs = passes(model, load_inputs(options.inputs, config), device, dtype)
    told = {
        "precision": dtype,
        "loss": repr(outputs["loss"].item()),
        **config.metadata(),
        **{name: str(value) for name, value in common.versions(device).items()},
    }
    common.save_tensors(options.out, outputs, told)
    print(f"{dtype}: loss {outputs['loss'].item():.9g}; {len(outputs) - 2} gradients in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
