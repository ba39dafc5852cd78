"""Times of a whole training step in PyTorch on one GPU, and of sampling: what the trainer is compared with.

    unet_speed.py --json OUT.json                 every variant
    unet_speed.py --only graph --json OUT.json    torch.compile, bf16, channels_last, the whole step in one CUDA graph
    unet_speed.py --sample --json OUT.json        64 images by 50 steps of DDIM, compiled, in CUDA graphs
    unet_speed.py --gpus 2 --batch 64 --only graph --json OUT.json      DistributedDataParallel, 32 images a GPU

A step draws noise and t, noises the images, runs forward, loss and backward, clips at 1.0, updates by fused AdamW and
foreach EMA. A variant is a process of its own: one that fails or takes too long is recorded with its error, the others
still run. After warm-up, CUDA events between steps give the times; median and quartiles of them are recorded. Memory is
PyTorch's own count of its peak, allocated and reserved, from building the model on. With several GPUs, all of that is
rank 0's, whose steps wait for those of the others.
"""

import os
import socket
import statistics
import sys

import numpy_and_torch  # noqa: F401

import torch
from torch.nn.parallel import DistributedDataParallel

import speed
import unet
import unet_common as common
from speed import waited
from unet_diffusion import ddim_step, ddim_table
from unet_step import WARM_UPS, Graph, Step, refuse_graph

# name: (dtype, channels_last, compiled, in a graph); the one that counts first
VARIANTS = {
    "graph": ("bf16", True, True, True),
    "eager_fp32": ("fp32", False, False, False),
    "eager_bf16_channels_last": ("bf16", True, False, False),
    "eager_bf16_channels_last_graph": ("bf16", True, False, True),
    "compile_bf16_channels_last": ("bf16", True, True, False),
    "compile_bf16": ("bf16", False, True, False),
}
SAMPLING = ("sample", "sample_eager")  # with --sample
CLIP, EMA_RATE, SAMPLER_STEPS = 1.0, 0.9999, 50
RANKS_WARM_UPS = 11  # calls of DistributedDataParallel before a capture: PyTorch's notes on CUDA graphs
SCHEMA = "ladder.pytorch-speed/1"  # results/SCHEMA.md


def prepared(options, device, channels_last):
    """The model on its device, and this rank's random images [n, 3, h, w] of 256 levels."""
    config = unet.CONFIGS[options.config]
    torch.manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = unet.UNet(config, explicit_attention=options.attention == "explicit").to(device).to(memory_format=layout)
    shape = (options.batch // options.gpus, 3, config.image_size, config.image_size)
    images = torch.randint(0, 256, shape, device=device) / 127.5 - 1
    if options.gpus > 1:
        gpu = [torch.cuda.current_device()] if device.type == "cuda" else None
        model = DistributedDataParallel(
            model, device_ids=gpu, bucket_cap_mb=options.bucket_mb, gradient_as_bucket_view=True
        )
    return model, images.to(memory_format=layout)


def compile_options(options):
    chosen = {}
    for word in options.inductor:
        name, _, value = word.partition("=")
        chosen[name] = {"True": True, "False": False}.get(value, int(value) if value.isdigit() else value)
    if options.max_autotune:  # as mode="max-autotune-no-cudagraphs", which excludes options of one's own
        chosen |= {"max_autotune": True, "coordinate_descent_tuning": True}
    return {"options": chosen} if chosen else {}


def measure_step(options, device):
    dtype, channels_last, compiled, graphed = VARIANTS[options.variant]
    # The defaults of an untuned user stay as they are: fp32, TF32 in convolutions only, no search among cuDNN's plans.
    torch.backends.cudnn.benchmark = options.variant != "eager_fp32"
    model, x0 = prepared(options, device, channels_last)
    step = Step(
        model, dtype=dtype, clip=CLIP, ema_rate=EMA_RATE, compiled=compiled, compile_options=compile_options(options)
    )

    def whole():
        t = torch.randint(0, 1000, (len(x0),), device=device)
        return step(x0, t, torch.randn_like(x0))

    warm_ups = RANKS_WARM_UPS if options.gpus > 1 else WARM_UPS
    call = Graph(whole, warm_ups) if graphed else whole
    started = waited(device)
    first, norm = (value.item() for value in call())
    for _ in range(options.warm_up):
        call()
    warm_up = waited(device) - started
    told = speed.summary(speed.timed(call, options.steps, device))
    last = call()[0].item()
    if not (first == first and last == last):
        raise common.Refusal(f"the loss is {first} at first and {last} in the end: no time is worth recording")
    return {**told, "warm_up_seconds": warm_up, "first_loss": first, "first_norm": norm, "last_loss": last}


def measure_sampling(options, device):
    """A denoising step is one graph, replayed 50 times; the step's number is on the device."""
    torch.backends.cudnn.benchmark = True
    model, x = prepared(options, device, True)
    model.requires_grad_(False)

    def following(x, t, roots):
        with common.precision(device, "bf16"):
            eps = model(x, t.expand(len(x)))
        return ddim_step(x, eps, roots)

    if options.variant == "sample":
        following = torch.compile(following, dynamic=False, **compile_options(options))
    at, roots = ddim_table(SAMPLER_STEPS, device)
    row = torch.zeros(1, dtype=torch.int64, device=device)

    @torch.no_grad()
    def denoise():
        x.copy_(following(x, at[row], roots[row][0]))
        row.add_(1).remainder_(SAMPLER_STEPS)

    call = Graph(denoise) if device.type == "cuda" else denoise

    def loop():
        before = waited(device)
        x.normal_()
        for _ in range(SAMPLER_STEPS):
            call()
        return waited(device) - before

    warm_up = loop()  # captured on the way
    milliseconds = [1e3 * loop() for _ in range(options.loops)]
    if not torch.isfinite(x).all():
        raise common.Refusal("the samples are not finite: no time is worth recording")
    return {
        "images": len(x),
        "sampler": f"ddim {SAMPLER_STEPS}",
        "ms": statistics.median(milliseconds),
        "ms_all": milliseconds,
        "warm_up_seconds": warm_up,
    }


def one(options):
    """The variant that --variant names, in this process, or in one for each GPU."""
    if options.gpus == 1:
        return of_rank(0, options)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # its checks end a capture: PyTorch's notes on CUDA graphs
    return torch.multiprocessing.spawn(of_rank, (options,), nprocs=options.gpus)


def of_rank(rank, options):
    """The variant on GPU `rank`; rank 0 writes the record."""
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
    device = common.device_of(options)
    if options.gpus > 1:
        backend = "nccl" if device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, rank=rank, world_size=options.gpus)
    _, _, compiled, graphed = VARIANTS.get(options.variant, (None, True, options.variant == "sample", False))
    speed.refuse_compile_on_cpu(device, compiled)
    if graphed:
        refuse_graph(device)
    measure = measure_sampling if options.variant in SAMPLING else measure_step
    told = measure(options, device) | {"versions": common.versions(device)}
    if device.type == "cuda":
        told |= {
            "peak_allocated_mib": torch.cuda.max_memory_allocated() / 2**20,
            "peak_reserved_mib": torch.cuda.max_memory_reserved() / 2**20,
        }
    if rank == 0:
        common.save_json(options.json, told)
    if options.gpus > 1:
        torch.distributed.barrier()
        os._exit(0)  # a communicator that a graph holds waits for ever in its end


def every(options, words):
    names = list(SAMPLING if options.sample else VARIANTS)
    unknown = [name for name in options.only or [] if name not in names]
    if unknown:
        raise common.Refusal(f"no variant '{unknown[0]}'; there are {', '.join(names)}")
    how = {
        name: getattr(options, name)
        for name in ("config", "batch", "gpus", "bucket_mb", "attention", "max_autotune", "inductor")
    }
    record = {**common.record_of(SCHEMA), **how, "clip": CLIP, "ema_rate": EMA_RATE}
    return speed.every(__file__, words, options, options.only or names, record, line_of)


def line_of(name, told):
    if "error" in told:
        return f"{name:<32} failed: {told['error']}"
    memory = f"  peak {told['peak_allocated_mib']:.0f} MiB" if "peak_allocated_mib" in told else ""
    return f"{name:<32} {told['ms']:9.3f} ms{memory}  (warm-up {told['warm_up_seconds']:.0f} s)"


def main(arguments=None):
    parser = speed.parser_of(
        __doc__.splitlines()[0],
        only=f"of {', '.join(VARIANTS)}",
        budget=230,
        limit=150,
        max_autotune="let torch.compile search; takes minutes",
        variants=[*VARIANTS, *SAMPLING],
    )
    parser.add_argument("--sample", action="store_true", help="time the sampler instead")
    parser.add_argument("--batch", type=int, help="images (default 32, of --sample 64)")
    parser.add_argument("--gpus", type=int, default=1, help="of DistributedDataParallel (default 1: without it)")
    parser.add_argument("--bucket-mb", type=float, default=25, help="of its gradients (default 25, PyTorch's)")
    parser.add_argument("--steps", type=int, default=100, help="that are timed (default 100)")
    parser.add_argument("--warm-up", type=int, default=10, help="steps before them (default 10)")
    parser.add_argument("--loops", type=int, default=5, help="of the sampler (default 5)")
    parser.add_argument("--attention", choices=("sdpa", "explicit"), default="sdpa")
    parser.add_argument("--inductor", nargs="*", default=[], metavar="NAME=VALUE", help="options of torch.compile")
    options, words = parser.parse_args(arguments), sys.argv[1:] if arguments is None else arguments
    options.batch = options.batch or (64 if options.sample else 32)
    if options.steps < 2 or options.warm_up < WARM_UPS + 1 or options.loops < 1 or options.batch < 1:
        parser.error(f"--steps from 2, --warm-up from {WARM_UPS + 1}, --loops and --batch from 1")
    if options.gpus < 1 or options.batch % options.gpus or (options.gpus > 1 and options.sample):
        parser.error("--gpus from 1, of which --batch is a multiple, without --sample")
    if options.variant and not options.json:
        parser.error("--variant needs --json")
    return common.run(one, options) if options.variant else common.run(every, options, words)


if __name__ == "__main__":
    sys.exit(main())
