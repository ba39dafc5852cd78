"""C++ text of a new pass with a placeholder formula.

The placeholder is the product of the inputs, summed over the dimensions that the output lacks, times 2 (3 for a second
output, and so on), and times g % 4 + 1 for an output index g that no input has. The formula holds for all shapes and
reads every input; neither a constant nor a copy equals it.
"""


def formulas(of, indent):
    return "\n".join(f"{indent}{of.pass_name}  {formula(of, output)}" for output in of.outputs)


def formula(of, output):
    summed = of.summed(output)
    over = f"sum over {', '.join(summed)} of " if summed else ""
    return f"{output} = {_factor(of, output, ' ')} {over}{' '.join(map(str, of.inputs))}"


def flops(of):
    return " + ".join(f"{len(of.inputs)}.0 * {product(output.sizes + of.summed(output))}" for output in of.outputs)


def product(letters, problem="p"):
    return " * ".join(f"{problem}.{letter}" for letter in letters)


def reference(of, output):
    """Loops that fill outputs["y"]."""
    name, summed = output.name, of.summed(output)
    factors = " * ".join(f"double{{{x.name}[{_offset(x.sizes)}]}}" for x in of.inputs)
    term = f"{_factor(of, output, ' * ')} * {factors}"
    loops = [_loop("std::int64_t", letter) for letter in output.sizes]
    if summed:
        inner = ["double value = 0, magnitude = 0;", *[_loop("std::int64_t", letter) for letter in summed]]
        inner += [f"const double term = {term};", "value += term;", "magnitude += std::abs(term);", *"}" * len(summed)]
    else:
        inner = [f"const double value = {term};", "const double magnitude = std::abs(value);"]
    results = [f"{name}.value.push_back(value);", f"{name}.magnitude.push_back(magnitude);"]
    lines = [f'Expected& {name} = outputs["{name}"];', *loops, *inner, *results, *"}" * len(output.sizes)]
    return _indented(lines, 1)


def kernel(of, output):
    """CUDA text of a kernel with one thread per output element."""
    direct = all(x.sizes == output.sizes for x in of.inputs)
    offsets = ["index" if x.sizes == output.sizes else _offset(x.sizes) for x in of.inputs]
    term = " * ".join(f"to_float({x.name}[{offset}])" for x, offset in zip(of.inputs, offsets))
    factor, summed = _factor(of, output, " * ", ".0f"), of.summed(output)
    store = f"{output.name}[index] = from_float<{output.type}>"
    if summed:
        loops = [_loop("int", letter) for letter in summed]
        body = ["float acc = 0;", *loops, f"acc += {term};", *"}" * len(summed), f"{store}({factor} * acc);"]
    else:
        body = [f"{store}({factor} * {term});"]
    lines = [
        f"// {formula(of, output)}",
        "template <class T>",
        f"__global__ void {_symbol(of, output)}(Problem size, {_parameters(of, output)}) {{",
        "const int index = blockIdx.x * kThreads + threadIdx.x;",
        f"if (index >= {product(output.sizes, 'size')}) return;",
        *([] if direct else _indices(of, output)),
        *body,
        "}",
    ]
    return _indented(lines, 0) + "\n"


def launch(of, output):
    tensors = [_argument(x, "const ") for x in of.inputs] + [_argument(output, "")]
    count = f"std::int64_t{{p.{output.sizes[0]}}}" + "".join(f" * p.{letter}" for letter in output.sizes[1:])
    config = f"{{.grid = stream_blocks({count}, kThreads, 1), .block = kThreads}}"
    return f"    ladder::launch({_symbol(of, output)}<T>, {config}, stream, p, {', '.join(tensors)});"


def _argument(tensor, constant):
    """Kernel argument for a tensor: its member of Tensors, cast from void* where it has the problem's dtype."""
    return f"static_cast<{constant}T*>(t.{tensor.name})" if tensor.type == "T" else f"t.{tensor.name}"


def _symbol(of, output):
    which = f"_{output.name}" if len(of.outputs) > 1 else ""
    return f"{of.layer}_{of.pass_name}_v01{which}_kernel"


def _parameters(of, output):
    return ", ".join([f"const {x.type}* {x.name}" for x in of.inputs] + [f"{output.type}* {output.name}"])


def _factor(of, output, times, fraction=""):
    more = [f"({letter} % 4 + 1)" for letter in output.sizes if not any(letter in x.sizes for x in of.inputs)]
    return times.join([f"{2 + of.outputs.index(output)}{fraction}", *more])


def _offset(sizes):
    """C++ expression of the linear row-major offset of an element; `sizes` holds a letter per index."""
    offset = sizes[0]
    for letter in sizes[1:]:
        offset = f"{f'({offset})' if '+' in offset else offset} * size.{letter} + {letter}"
    return offset


def _indices(of, output):
    """C++ lines that derive each index that the formula uses from the output's linear `index`."""
    used = {c for x in of.inputs if x.sizes != output.sizes for c in x.sizes}
    used |= {c for c in output.sizes if not any(c in x.sizes for x in of.inputs)}
    for i, letter in enumerate(output.sizes):
        inner = product(output.sizes[i + 1 :], "size")
        quotient = f"index / ({inner})" if "*" in inner else f"index / {inner}" if inner else "index"
        if letter in used:
            yield f"const int {letter} = {quotient}{f' % size.{letter}' if i else ''};"


def _loop(kind, letter):
    return f"for ({kind} {letter} = 0; {letter} < size.{letter}; ++{letter}) {{"


def _indented(lines, depth):
    found = []
    for line in lines:
        depth -= line.startswith("}")
        found.append("  " * depth + line)
        depth += line.endswith("{")
    return "\n".join(found)
