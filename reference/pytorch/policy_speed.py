"""Times a policy's answers in PyTorch on one GPU, for comparison with `./ladder denoise`.

    policy_speed.py --json OUT.json                   every variant, as far as --budget goes
    policy_speed.py --only small_bf16_operators --json OUT.json
    policy_speed.py --max-autotune --json OUT.json    torch.compile searches, for n1 and bf16 alone; cut at 240 seconds

A variant is a size, a precision and a way to run. `operators` has three: the operators one by one (`eager`), the
network in a CUDA graph with the scheduler outside (`graph_network`), and all steps with their noise in one graph
(`graph_all`). `compile` compiles a step and captures all steps in one graph. An answer begins with fresh noise. `ms` is
the time between CUDA events, `host_ms` the time from the observation in host memory to the actions in host memory.
`streaming` reads and copies the weights that every step needs (convolutions and norms) 100 times in one graph: the
lower bound of 100 steps that keep nothing on chip.

Each variant runs in a process of its own, and the record is rewritten after each. A variant that fails or takes too
long is recorded with its error and the times measured until then.
"""

import statistics
import subprocess
import sys
import time

import numpy_and_torch  # noqa: F401

import torch

import policy_network as policy
import speed
import unet_common as common
from unet_step import WARM_UPS, Graph

SIZES = {
    "small": {"diffusion_step_embed_dim": 256, "down_dims": (256, 512, 1024)},
    "large": {"diffusion_step_embed_dim": 128, "down_dims": (512, 1024, 2048)},
    "tiny": {"diffusion_step_embed_dim": 32, "down_dims": (32, 64, 128)},
}
HORIZON, ACTION_DIM, OBSERVATION = 16, 2, 1028
SAMPLERS = {"ddpm100": ("ddpm", 100), "ddim16": ("ddim", 16), "ddim8": ("ddim", 8)}
PRECISIONS, WAYS = ("bf16", "fp32", "tf32"), ("operators", "compile")
STREAMED_STEPS = 100
LONG = 1.5  # seconds: limit of the timed answers of a row
SCHEMA = "ladder.policy-speed/1"  # results/SCHEMA.md


def names(options):
    """Returns the names of the variants, the most important first."""
    if options.max_autotune:
        return ["small_bf16_max-autotune"]
    return ["streaming", *(f"{size}_{p}_{way}" for p in PRECISIONS for size in sizes(options) for way in WAYS)]


def sizes(options):
    return [options.size] if options.size else ["small", "large"]


def module_of(size, device):
    torch.manual_seed(0)
    with device:
        return policy.ConditionalUnet1D(ACTION_DIM, OBSERVATION, **SIZES[size]).requires_grad_(False).eval()


def step_bytes(module, bytes_each):
    """Returns the bytes of the weights that every step reads, without layers of t and the observation alone."""
    apart = ("cond_encoder", "diffusion_step_encoder")
    return bytes_each * sum(
        p.numel() for name, p in module.named_parameters() if not any(part in name for part in apart)
    )


def step_of(module, scheduler):
    """Returns a denoising step. One compiled step serves all samplers, which differ in the factors alone."""

    def step(x, t, observation, row, noise):
        return scheduler.step(x, module(x, t.expand(len(x)), observation), row, noise)

    return step


class Answer:
    """Answers to `n` random observations. All ways to run share the buffers."""

    def __init__(self, module, scheduler, n, compiled):
        self.scheduler = scheduler
        self.device = scheduler.rows.device
        self.host = torch.randn(n, OBSERVATION, pin_memory=self.device.type == "cuda")
        self.observation = self.host.to(self.device)
        self.x = torch.zeros(n, HORIZON, ACTION_DIM, device=self.device)
        self.t = torch.zeros(n, dtype=torch.int64, device=self.device)
        self.out = torch.zeros_like(self.x)
        self.take_step = compiled or step_of(module, scheduler)
        self.network = Graph(lambda: module(self.x, self.t, self.observation))

    @torch.no_grad()
    def all_steps(self):
        x = torch.randn_like(self.x)
        for t, row in zip(self.scheduler.timesteps, self.scheduler.rows):
            x = self.take_step(x, t, self.observation, row, torch.randn_like(x))
        self.out.copy_(x)

    @torch.no_grad()
    def around_the_network(self):
        """Run the network as a CUDA graph and the scheduler's operators one by one."""
        self.x.normal_()
        for t, row in zip(self.scheduler.timesteps, self.scheduler.rows):
            self.t.copy_(t)
            self.x.copy_(self.scheduler.step(self.x, self.network(), row, torch.randn_like(self.x)))
        self.out.copy_(self.x)

    def from_host_to_host(self, call):
        self.observation.copy_(self.host, non_blocking=True)
        call()
        return self.out.cpu()  # synchronises


def row_of(answer, call, options):
    """Returns a row of the record: times of one call, n and sampler."""
    started = time.perf_counter()
    for _ in range(WARM_UPS + 1):  # the last call captures the graph
        took = time.perf_counter()
        actions = answer.from_host_to_host(call)
        took = time.perf_counter() - took
    warm_up = time.perf_counter() - started
    count = max(3, min(options.answers, int(LONG / took)))
    told = speed.summary(speed.timed(call, count, answer.device))
    host = []
    for _ in range(count):
        before = time.perf_counter()
        actions = answer.from_host_to_host(call)
        host.append(1e3 * (time.perf_counter() - before))
    if not actions.isfinite().all():
        raise common.Refusal("the actions are not finite: no time is worth recording")
    return {**told, "host_ms": statistics.median(host), "host_ms_worst": max(host), "warm_up_seconds": warm_up}


def measure(options, device, save):
    """Time all rows of a variant; save the record after each row."""
    size, precision, way = options.variant.split("_")
    speed.refuse_compile_on_cpu(device, compiled=way != "operators")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    module = module_of(size, device)
    if precision == "bf16":
        module.bfloat16()
    samplers = {name: policy.Scheduler({}, *SAMPLERS[name], device=device) for name in options.samplers}
    compiled = None
    if way != "operators":
        torch._dynamo.config.recompile_limit = 64
        mode = {"mode": "max-autotune-no-cudagraphs"} if way == "max-autotune" else {}
        compiled = torch.compile(step_of(module, next(iter(samplers.values()))), dynamic=False, **mode)
    rows = []
    for n in options.batches if way != "max-autotune" else options.batches[:1]:
        for sampler, scheduler in samplers.items():
            answer = Answer(module, scheduler, n, compiled)
            calls = {} if device.type == "cpu" else {"graph_all": Graph(answer.all_steps)}
            if not compiled:
                calls["eager"] = answer.all_steps
                if device.type != "cpu":
                    calls["graph_network"] = answer.around_the_network
            for how, call in calls.items():
                rows.append({"n": n, "sampler": sampler, "how": how, **row_of(answer, call, options)})
                print(line_of(options.variant, rows[-1]), flush=True)
                save({"size": size, "precision": precision, "way": way, "rows": rows})


def measure_streaming(options, device, save):
    rows = []
    for size in sizes(options):
        with torch.device("meta"):
            module = policy.ConditionalUnet1D(ACTION_DIM, OBSERVATION, **SIZES[size])
        for precision, bytes_each in (("bf16", 2), ("fp32", 4)):
            moved = step_bytes(module, bytes_each)
            weights = torch.ones(moved // 4, device=device)
            other, total = torch.empty_like(weights), torch.empty((), device=device)

            def read(weights=weights, total=total):
                for _ in range(STREAMED_STEPS):
                    torch.sum(weights, dim=0, out=total)

            def copy(weights=weights, other=other):
                for _ in range(STREAMED_STEPS):
                    other.copy_(weights)

            for how, call in (("read", read), ("copy", copy)):
                call = Graph(call) if device.type == "cuda" else call
                for _ in range(WARM_UPS + 1):
                    call()
                told = speed.summary(speed.timed(call, max(3, options.answers // 5), device))
                terabytes = STREAMED_STEPS * moved * (2 if how == "copy" else 1) / told["ms"] / 1e9
                kind = {"size": size, "precision": precision, "bytes": moved, "steps": STREAMED_STEPS}
                rows.append({"how": how, **kind, **told, "terabytes_a_second": terabytes})
                print(f"streaming {size} {precision} {how:<5} {told['ms']:9.3f} ms  {terabytes:.2f} TB/s", flush=True)
                save({"rows": rows})


def line_of(name, row):
    return f"{name:<24} n{row['n']:<3} {row['sampler']:<8} {row['how']:<14} {row['ms']:9.3f} ms  host {row['host_ms']:9.3f}"


def driver():
    """Returns the NVIDIA driver's version, or None."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def one(options):
    """Measure the variant of --variant in this process."""
    device = common.device_of(options)
    versions = {**common.versions(device), "driver": driver() if device.type == "cuda" else None}

    def save(told):
        common.save_json(options.json, {**told, "versions": versions})

    (measure_streaming if options.variant == "streaming" else measure)(options, device, save)


def every(options, words):
    fixed = {"horizon": HORIZON, "action_dim": ACTION_DIM, "observation": OBSERVATION}
    record = {**common.record_of(SCHEMA), **fixed, "max_autotune": options.max_autotune}

    def failure(name, told):  # a successful variant has printed its rows already
        return f"{name:<24} failed after {len(told.get('rows', []))} rows: {told['error']}" if "error" in told else None

    return speed.every(__file__, words, options, options.only or names(options), record, failure)


def main(arguments=None):
    parser = speed.parser_of(
        __doc__.splitlines()[0],
        only="streaming, small_bf16_operators, large_fp32_compile, ..",
        budget=560,
        limit=240,
        max_autotune="time what torch.compile's search finds, and nothing else",
        config=False,
    )
    parser.add_argument("--size", choices=sorted(SIZES), help="this one alone (default: small and large)")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[1, 64, 8], help="observations at once (default 1 64 8)"
    )
    parser.add_argument("--samplers", nargs="+", choices=sorted(SAMPLERS), default=list(SAMPLERS))
    parser.add_argument("--answers", type=int, default=50, help="timed at most (default 50)")
    options, words = parser.parse_args(arguments), sys.argv[1:] if arguments is None else arguments
    unknown = [name for name in [*(options.only or []), options.variant] if name and name not in names(options)]
    if unknown:
        parser.error(f"no variant '{unknown[0]}'; there are {', '.join(names(options))}")
    if options.variant and not options.json:
        parser.error("--variant needs --json")
    if min(options.batches) < 1 or options.answers < 3:
        parser.error("--batches from 1, --answers from 3")
    return common.run(one, options) if options.variant else common.run(every, options, words)


if __name__ == "__main__":
    sys.exit(main())
