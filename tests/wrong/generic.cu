#include <cmath>
#include <exception>

#include "core/check/check.h"
#include "tests/support.h"
#include "tests/wrong/call.h"

namespace ladder::wrong {
namespace {

// 0 of a tensor that is not there.
std::size_t bytes_of(const Case& c, const std::string& tensor) {
  const auto spec = std::ranges::find(c.tensors, tensor, &TensorSpec::name);
  return spec == c.tensors.end() ? 0 : spec->bytes();
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

  void add(const std::string& name, Body body, std::vector<Dtype> dtypes = {}, bool needs_streams = false) {
    const auto honest_bytes = [v = &honest_](const Case& c) { return aligned(workspace_bytes_of(*v, c)); };
    Launch launch = [v = &honest_, honest_bytes, body = std::move(body)](const Case& c, void* const* pointers,
                                                                         void* workspace, Stream stream) {
      auto* const own = static_cast<Byte*>(workspace) + honest_bytes(c);
      body({*v, c, {pointers, pointers + c.tensors.size()}, workspace, own, stream});
    };
    // Room for a copy of every tensor, whoever needs it.
    WorkspaceBytes bytes = [honest_bytes](const Case& c) { return honest_bytes(c) + all_bytes(c); };
    Supports supports = [v = &honest_, needs_streams](const Case& c) {
      const bool on_emulator = backend::kind() == backend::Kind::emulator;
      return needs_streams && on_emulator ? "the emulator has no streams" : v->supports(c);
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
    const auto first = call.c.tensors.begin();
    const Expected& answer =
        run.expected.at(std::count_if(first, first + output, std::mem_fn(&TensorSpec::is_written)));
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
            const std::size_t bytes = call.spec(*i).bytes();
            call.copy(call.own, call.bytes(*i), bytes);
            call.copy(call.bytes(*i), call.bytes(*j), bytes);
            call.copy(call.bytes(*j), call.own, bytes);
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
    const bool is_first = !kept->is_of(call, all_bytes(call.c));
    call.launch_honest();
    copy_outputs(call, is_first ? kept->data() : call.own, true);
    if (is_first) return;
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
      {}, /*needs_streams=*/true);
  cheats.add(
      "waits",
      [](const Call& call) {
        call.launch_honest();
        backend::synchronize();
      },
      {}, /*needs_streams=*/true);
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
