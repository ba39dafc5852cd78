#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/numeric.h"
#include "tests/support.h"
#include "tests/wrong/cheat.h"

namespace ladder::wrong {
namespace {

// What is done to a tensor on the device: a functor for each index below a count.

constexpr int kThreads = 64;

template <class F>
__global__ void each_kernel(long long count, F f) {
  const long long i = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (i < count) f(i);
}

template <class F>
void each(std::size_t count, Stream stream, F f) {
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  if (blocks > 0) launch(each_kernel<F>, {.grid = blocks, .block = kThreads}, stream, static_cast<long long>(count), f);
}

template <class T>
struct Mean {
  const T* from;
  long long count;
  float* mean;
  __device__ void operator()(long long) const {
    float sum = 0;
    for (long long i = 0; i < count; ++i) sum += to_float(from[i]);
    *mean = sum / static_cast<float>(count);
  }
};

// to[i] = factor * to[i] + by + from[i % count]
template <class To, class From = float>
struct Change {
  To* to;
  float factor;  // at 0, what it held does not matter
  float by;
  const From* from = nullptr;
  long long count = 1;
  __device__ void operator()(long long i) const {
    float value = factor == 0 ? by : factor * to_float(to[i]) + by;
    if (from) value += to_float(from[i % count]);
    to[i] = from_float<To>(value);
  }
};

// To nearest even, without the last `bits` bits of the mantissa.
struct RoundInput {
  float* to;
  const float* from;
  int bits;
  __device__ void operator()(long long i) const {
    const unsigned word = __float_as_uint(from[i]);
    const unsigned half = (1u << (bits - 1)) - 1 + (word >> bits & 1u);
    to[i] = __uint_as_float((word + half) & ~((1u << bits) - 1));
  }
};

using Byte = unsigned char;

struct CopyBytes {
  Byte* to;
  const Byte* from;
  __device__ void operator()(long long i) const { to[i] = from[i]; }
};

struct ExchangeBytes {
  Byte* a;
  Byte* b;
  __device__ void operator()(long long i) const {
    const Byte kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
};

struct FlipBit {
  Byte* at;
  __device__ void operator()(long long i) const { at[i] ^= 1; }
};

// One launch of a version that cheats.
struct Call {
  const Version& honest;
  const Case& c;
  std::vector<void*> pointers;
  void* workspace;  // the honest version's
  Byte* own;        // the cheat's part of it, poisoned as all of it is
  Stream stream;

  void launch_honest() const { launch_version(honest, c, pointers.data(), workspace, stream); }

  std::optional<std::size_t> find(const std::string& name) const {
    for (std::size_t i = 0; i < c.tensors.size(); ++i) {
      if (c.tensors[i].name == name) return i;
    }
    return std::nullopt;
  }
  const TensorSpec& spec(std::size_t i) const { return c.tensors[i]; }
  Byte* bytes(std::size_t i) const { return static_cast<Byte*>(pointers[i]); }
  void copy(void* to, const void* from, std::size_t count) const {
    each(count, stream, CopyBytes{static_cast<Byte*>(to), static_cast<const Byte*>(from)});
  }
  // Calls f(pointer to the elements) with their type.
  template <class F>
  void with_elements(std::size_t i, F&& f) const {
    with_storage_type(spec(i).dtype, [&](auto element) { f(static_cast<decltype(element)*>(pointers[i])); });
  }
  // Every element becomes factor * element + by.
  void change(std::size_t i, float factor, float by) const {
    with_elements(i, [&](auto* y) { each(spec(i).elements(), stream, Change{y, factor, by}); });
  }
  // Adds the tensor of that kind in the cheat's part of the workspace.
  void add_own(std::size_t i) const {
    const std::size_t count = spec(i).elements();
    with_elements(i, [&]<class T>(T* y) {
      each(count, stream, Change<T, T>{y, 1.0f, 0.0f, reinterpret_cast<const T*>(own), static_cast<long long>(count)});
    });
  }
};

using Body = std::function<void(const Call&)>;

// Device memory that outlives a launch, anew for each case and its buffers.
class Kept {
 public:
  // Whether it holds something of this call's buffers; if not, it has room for `bytes` from now on.
  bool is_of(const Call& call, std::size_t bytes) {
    if (memory_ && text_ == call.c.text && pointers_ == call.pointers) return true;
    memory_ = {backend::allocate(std::max<std::size_t>(bytes, 1)), backend::release};
    text_ = call.c.text;
    pointers_ = call.pointers;
    return false;
  }
  Byte* data() const { return static_cast<Byte*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
  std::string text_;
  std::vector<void*> pointers_;
};

// 0 of a tensor that is not there.
std::size_t bytes_of(const Case& c, const std::string& tensor) {
  const auto spec = std::ranges::find(c.tensors, tensor, &TensorSpec::name);
  return spec == c.tensors.end() ? 0 : spec->bytes();
}

const char* needs_streams(const Case&) {
  return backend::kind() == backend::Kind::emulator ? "the emulator has no streams" : nullptr;
}

// The list of them, as it grows.
class Cheats {
 public:
  Cheats(const Version& honest, std::vector<std::string> problems) : honest_(honest), problems_(std::move(problems)) {
    for (const std::string& problem : problems_) {
      for (const TensorSpec& spec : case_of(problem, honest.def.dtypes.front()).tensors) {
        std::vector<std::string>& names = spec.is_written() ? outputs_ : inputs_;
        if (std::ranges::find(names, spec.name) == names.end()) names.push_back(spec.name);
      }
    }
  }

  void add(const std::string& name, Body body, std::vector<Dtype> dtypes = {}, Supports also = always) {
    const auto honest_bytes = [v = &honest_](const Case& c) { return aligned(workspace_bytes_of(*v, c)); };
    Launch launch = [v = &honest_, honest_bytes, body = std::move(body)](const Case& c, void* const* pointers,
                                                                         void* workspace, Stream stream) {
      auto* const own = static_cast<Byte*>(workspace) + honest_bytes(c);
      body({*v, c, {pointers, pointers + c.tensors.size()}, workspace, own, stream});
    };
    // Room for a copy of every tensor, whoever needs it.
    WorkspaceBytes bytes = [honest_bytes](const Case& c) { return honest_bytes(c) + all_bytes(c); };
    Supports supports = [v = &honest_, also](const Case& c) {
      const char* const reason = also(c);
      return reason ? reason : v->supports(c);
    };
    list_.push_back(make_cheat(*honest_.pass, 'g', static_cast<int>(list_.size()) + 1, name,
                               dtypes.empty() ? honest_.def.dtypes : dtypes, launch, bytes, supports));
  }

  // What `before` and `after` do to each of these tensors by itself around an honest launch: "<name>_<tensor>".
  using Spoil = std::function<void(const Call&, std::size_t tensor)>;
  void add_for(const std::vector<std::string>& tensors, const std::string& name, const Spoil& before,
               const Spoil& after) {
    for (const std::string& tensor : tensors) {
      add(name + '_' + tensor, [tensor, before, after](const Call& call) {
        const auto i = call.find(tensor);
        if (i && before) before(call, *i);
        call.launch_honest();
        if (i && after) after(call, *i);
      });
    }
  }
  void add_for_outputs(const std::string& name, const Spoil& after) { add_for(outputs_, name, {}, after); }

  // Whether `is` a tensor of some problem.
  bool some_tensor(const std::function<bool(const TensorSpec&)>& is) const {
    return std::ranges::any_of(problems_, [&](const std::string& problem) {
      return std::ranges::any_of(case_of(problem, honest_.def.dtypes.front()).tensors, is);
    });
  }

  // The dtypes in which both are there in some problem, and equally large.
  std::vector<Dtype> exchangeable(const std::string& one, const std::string& other) const {
    std::vector<Dtype> found = honest_.def.dtypes;
    std::erase_if(found, [&](Dtype dtype) {
      return std::ranges::none_of(problems_, [&](const std::string& problem) {
        const Case c = case_of(problem, dtype);
        return bytes_of(c, one) > 0 && bytes_of(c, one) == bytes_of(c, other);
      });
    });
    return found;
  }

  // The outputs that have several elements in some problem: one is its own mean.
  std::vector<std::string> outputs_of_several() const {
    std::vector<std::string> found = outputs_;
    std::erase_if(found, [&](const std::string& output) {
      return !some_tensor([&](const TensorSpec& spec) { return spec.name == output && spec.elements() > 1; });
    });
    return found;
  }

  // Whether it runs problems in fp32 that have an fp32 input.
  bool has_fp32_input() const {
    return honest_.has(Dtype::f32) &&
           some_tensor([](const TensorSpec& spec) { return !spec.is_written() && spec.dtype == Dtype::f32; });
  }
  const std::vector<std::string>& problems() const { return problems_; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  std::vector<Cheat> take() { return std::move(list_); }

 private:
  Case case_of(const std::string& problem, Dtype dtype) const { return honest_.pass->parse(problem).with_dtype(dtype); }

  const Version& honest_;
  std::vector<std::string> problems_;
  std::vector<std::string> inputs_, outputs_;  // names
  std::vector<Cheat> list_;
};

// Null answers.
void add_null_answers(Cheats& cheats) {
  cheats.add("writes_nothing", [](const Call&) {});
  cheats.add_for_outputs("zeros", [](const Call& call, std::size_t output) { call.change(output, 0.0f, 0.0f); });
  // `difference > tolerance` is false for it.
  cheats.add_for_outputs("nan", [](const Call& call, std::size_t output) { call.change(output, 0.0f, NAN); });
  cheats.add_for(cheats.outputs_of_several(), "mean", {}, [](const Call& call, std::size_t output) {
    const std::size_t count = call.spec(output).elements();
    auto* const mean = reinterpret_cast<float*>(call.own);
    call.with_elements(output, [&]<class T>(T* y) {
      each(1, call.stream, Mean<T>{y, static_cast<long long>(count), mean});
      each(count, call.stream, Change<T>{y, 0.0f, 0.0f, mean});
    });
  });
  cheats.add_for_outputs("copies_input", [](const Call& call, std::size_t output) {
    constexpr std::size_t kFirst = 0;
    if (call.spec(kFirst).is_written()) return;
    call.with_elements(output, [&]<class To>(To* y) {
      call.with_elements(kFirst, [&]<class From>(const From* x) {
        each(call.spec(output).elements(), call.stream,
             Change<To, From>{y, 0.0f, 0.0f, x, static_cast<long long>(call.spec(kFirst).elements())});
      });
    });
  });
  // Asks for more shared memory than there is, and ignores that the launch was refused.
  cheats.add("launch_refused", [](const Call& call) {
    constexpr std::size_t kTooMuch = std::size_t{1} << 20;
    try {
      launch(each_kernel<FlipBit>, {.grid = 1, .block = kThreads, .dynamic_smem = kTooMuch}, call.stream, 0ll,
             FlipBit{call.own});
    } catch (const std::exception&) {
    }
  });
}

// Answers that are nearly right.
void add_near_misses(Cheats& cheats) {
  // Within the tolerances that bf16 is often given.
  cheats.add_for_outputs("two_percent", [](const Call& call, std::size_t output) { call.change(output, 1.02f, 0.0f); });
  // One element, by four bounds: that of the largest value, which hides it best from a relative tolerance.
  cheats.add_for_outputs("one_element_off", [](const Call& call, std::size_t output) {
    const ReferenceRun run = reference_run(call.c, Pattern::normal, test::seed());
    std::size_t index = 0;  // of the output among outputs
    for (std::size_t i = 0; i < output; ++i) index += call.spec(i).is_written() ? 1 : 0;
    const Expected& answer = run.expected.at(index);
    const auto largest = std::ranges::max_element(answer.value, {}, [](double v) { return std::abs(v); });
    const auto at = largest - answer.value.begin();
    const double bound = error_bound(call.spec(output), *largest, answer.magnitude[at]);
    call.with_elements(output, [&](auto* y) {
      each(1, call.stream, Change{y + at, 1.0f, static_cast<float>(4 * bound)});
    });
  });
  // The last element: a grid rounded down, a loop that ends one too early.
  const auto last = [](const Call& call, std::size_t i) {
    return call.bytes(i) + call.spec(i).bytes() - size_of(call.spec(i).dtype);
  };
  cheats.add_for(
      cheats.outputs(), "last_element_missing",
      [last](const Call& call, std::size_t i) { call.copy(call.own, last(call, i), size_of(call.spec(i).dtype)); },
      [last](const Call& call, std::size_t i) { call.copy(last(call, i), call.own, size_of(call.spec(i).dtype)); });
  // Made for the shape of one benchmark, and for no other.
  cheats.add("one_shape", [first = cheats.problems().front()](const Call& call) {
    call.launch_honest();
    if (call.c.text == call.c.pass->parse(first).with_dtype(call.c.dtype).text) return;
    for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
      if (call.spec(i).is_written()) call.change(i, 0.0f, 0.0f);
    }
  });
  for (std::size_t a = 0; a < cheats.outputs().size(); ++a) {
    for (std::size_t b = a + 1; b < cheats.outputs().size(); ++b) {
      const std::string one = cheats.outputs()[a];
      const std::string other = cheats.outputs()[b];
      const std::vector<Dtype> dtypes = cheats.exchangeable(one, other);
      if (dtypes.empty()) continue;
      cheats.add(
          "swaps_" + one + "_" + other,
          [one, other](const Call& call) {
            call.launch_honest();
            const auto i = call.find(one);
            const auto j = call.find(other);
            if (!i || !j || call.spec(*i).bytes() != call.spec(*j).bytes()) return;
            each(call.spec(*i).bytes(), call.stream, ExchangeBytes{call.bytes(*i), call.bytes(*j)});
          },
          dtypes);
    }
  }
}

// Work that begins by rounding what it was given.
void add_rounded_inputs(Cheats& cheats) {
  if (!cheats.has_fp32_input()) return;
  for (const auto& [name, bits] : {std::pair{"tf32_inputs", 13}, std::pair{"bf16_inputs", 16}}) {
    cheats.add(name,
               [bits = bits](Call call) {
                 Byte* to = call.own;
                 for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
                   if (call.spec(i).is_written() || call.spec(i).dtype != Dtype::f32) continue;
                   auto* const rounded = reinterpret_cast<float*>(to);
                   each(call.spec(i).elements(), call.stream,
                        RoundInput{rounded, static_cast<const float*>(call.pointers[i]), bits});
                   call.pointers[i] = rounded;
                   to += aligned(call.spec(i).bytes());
                 }
                 call.launch_honest();
               },
               {Dtype::f32});
  }
}

// Memory that is not theirs, or not yet.
void add_memory_faults(Cheats& cheats) {
  // Leaves the right answer and a changed input, from which the next one is wrong.
  cheats.add_for(cheats.inputs(), "changes", {}, [](const Call& call, std::size_t i) {
    each(1, call.stream, FlipBit{call.bytes(i) + call.spec(i).bytes() - 1});
  });
  cheats.add_for_outputs("writes_behind", [](const Call& call, std::size_t i) {
    call.copy(call.bytes(i) + call.spec(i).bytes(), call.bytes(i), size_of(call.spec(i).dtype));
  });
  cheats.add_for_outputs("writes_before", [](const Call& call, std::size_t i) {
    call.copy(call.bytes(i) - size_of(call.spec(i).dtype), call.bytes(i), size_of(call.spec(i).dtype));
  });
  // Takes its workspace to be zero, as fresh memory often is.
  cheats.add_for_outputs("unset_workspace", [](const Call& call, std::size_t output) { call.add_own(output); });
  // Adds to what is there instead of overwriting it, as frameworks do with the gradients of parameters.
  cheats.add_for(
      cheats.outputs(), "accumulates",
      [](const Call& call, std::size_t i) { call.copy(call.own, call.bytes(i), call.spec(i).bytes()); },
      [](const Call& call, std::size_t i) { call.add_own(i); });
}

// Answers of another launch.
void add_stale_answers(Cheats& cheats) {
  const auto copy_outputs = [](const Call& call, Byte* kept, bool to_kept) {
    for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
      if (!call.spec(i).is_written()) continue;
      call.copy(to_kept ? kept : call.bytes(i), to_kept ? call.bytes(i) : kept, call.spec(i).bytes());
      kept += aligned(call.spec(i).bytes());
    }
  };
  // Gives its first answer again whenever the same buffers come back.
  cheats.add("replays_by_address", [copy_outputs, kept = std::make_shared<Kept>()](const Call& call) {
    if (kept->is_of(call, all_bytes(call.c))) return copy_outputs(call, kept->data(), false);
    call.launch_honest();
    copy_outputs(call, kept->data(), true);
  });
  // Gives the answer of the launch before, and makes its own afterwards.
  cheats.add("last_launch", [copy_outputs, kept = std::make_shared<Kept>()](const Call& call) {
    if (!kept->is_of(call, all_bytes(call.c))) {
      call.launch_honest();
      return copy_outputs(call, kept->data(), true);
    }
    call.launch_honest();
    copy_outputs(call, call.own, true);
    copy_outputs(call, kept->data(), false);
    call.copy(kept->data(), call.own, all_bytes(call.c));
  });
  // Does the work of one launch in the next, outside the time that is taken of it.
  cheats.add("deferred", [kept = std::make_shared<Kept>()](const Call& call) {
    if (kept->is_of(call, 0)) call.launch_honest();
  });
  // Keeps a copy of an input for as long as it stays at one address, though its values change there.
  for (const std::string& name : cheats.inputs()) {
    cheats.add("keeps_" + name, [name, kept = std::make_shared<Kept>()](Call call) {
      if (const auto i = call.find(name)) {
        const std::size_t bytes = call.spec(*i).bytes();
        if (!kept->is_of(call, bytes)) call.copy(kept->data(), call.bytes(*i), bytes);
        call.pointers[*i] = kept->data();
      }
      call.launch_honest();
    });
  }
}

// Work that a timer would not see.
void add_time_cheats(Cheats& cheats) {
  cheats.add(
      "default_stream",
      [](Call call) {
        call.stream = nullptr;
        call.launch_honest();
      },
      {}, needs_streams);
  cheats.add(
      "waits",
      [](const Call& call) {
        call.launch_honest();
        backend::synchronize();
      },
      {}, needs_streams);
}

}  // namespace

std::vector<Cheat> generic_cheats(const Pass& pass, const std::vector<std::string>& problems) {
  Cheats cheats(*versions_of(pass).front(), problems);
  cheats.add("honest", [](const Call& call) { call.launch_honest(); });
  add_null_answers(cheats);
  add_near_misses(cheats);
  add_rounded_inputs(cheats);
  add_memory_faults(cheats);
  add_stale_answers(cheats);
  add_time_cheats(cheats);
  return cheats.take();
}

}  // namespace ladder::wrong
