#include <cmath>
#include <exception>

#include "core/check/check.h"
#include "tests/support.h"
#include "tests/wrong/generic.h"

namespace ladder::wrong {
namespace {

// Null answers.
void add_null_answers(Cheats& cheats) {
  cheats.add("writes_nothing", [](const Call&) {});
  cheats.add_for_outputs("zeros", [](const Call& call, std::size_t output) { call.change(output, 0.0f, 0.0f); });
  // `difference > tolerance` is false for it.
  cheats.add_for_outputs("nan", [](const Call& call, std::size_t output) { call.change(output, 0.0f, NAN); });
  cheats.add_for(cheats.outputs_of_several(), "mean", {}, [](const Call& call, std::size_t output) {
    const std::size_t count = call.spec(output).elements();
    auto* const mean = reinterpret_cast<float*>(call.scratch);
    call.with_elements(output, [&]<class T>(T* y) {
      for_each_index(1, call.stream, Mean<T>{y, static_cast<long long>(count), mean});
      for_each_index(count, call.stream, Change<T>{y, 0.0f, 0.0f, mean});
    });
  });
  cheats.add_for_outputs("copies_input", [](const Call& call, std::size_t output) {
    constexpr std::size_t kFirst = 0;
    if (call.spec(kFirst).is_written()) return;
    call.with_elements(output, [&]<class To>(To* y) {
      call.with_elements(kFirst, [&]<class From>(const From* x) {
        for_each_index(call.spec(output).elements(), call.stream,
                       Change<To, From>{y, 0.0f, 0.0f, x, static_cast<long long>(call.spec(kFirst).elements())});
      });
    });
  });
  // Asks for more shared memory than there is, and ignores that the launch was refused.
  cheats.add("launch_refused", [](const Call& call) {
    constexpr std::size_t kTooMuch = std::size_t{1} << 20;
    try {
      launch(each_kernel<FlipBit>, {.grid = 1, .block = kThreads, .dynamic_smem = kTooMuch}, call.stream, 0ll,
             FlipBit{call.scratch});
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
      for_each_index(1, call.stream, Change{y + at, 1.0f, static_cast<float>(4 * bound)});
    });
  });
  // The last element: a grid rounded down, a loop that ends one too early.
  const auto last = [](const Call& call, std::size_t i) {
    return call.bytes(i) + call.spec(i).bytes() - size_of(call.spec(i).dtype);
  };
  cheats.add_for(
      cheats.outputs(), "last_element_missing",
      [last](const Call& call, std::size_t i) { call.copy(call.scratch, last(call, i), size_of(call.spec(i).dtype)); },
      [last](const Call& call, std::size_t i) { call.copy(last(call, i), call.scratch, size_of(call.spec(i).dtype)); });
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
            call.copy(call.scratch, call.bytes(*i), bytes);
            call.copy(call.bytes(*i), call.bytes(*j), bytes);
            call.copy(call.bytes(*j), call.scratch, bytes);
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
                 Byte* to = call.scratch;
                 for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
                   if (call.spec(i).is_written() || call.spec(i).dtype != Dtype::f32) continue;
                   auto* const rounded = reinterpret_cast<float*>(to);
                   for_each_index(call.spec(i).elements(), call.stream,
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
    for_each_index(1, call.stream, FlipBit{call.bytes(i) + call.spec(i).bytes() - 1});
  });
  cheats.add_for_outputs("writes_behind", [](const Call& call, std::size_t i) {
    call.copy(call.bytes(i) + call.spec(i).bytes(), call.bytes(i), size_of(call.spec(i).dtype));
  });
  cheats.add_for_outputs("writes_before", [](const Call& call, std::size_t i) {
    call.copy(call.bytes(i) - size_of(call.spec(i).dtype), call.bytes(i), size_of(call.spec(i).dtype));
  });
  // Takes its workspace to be zero, as fresh memory often is.
  cheats.add_for_outputs("unset_workspace", [](const Call& call, std::size_t output) { call.add_scratch(output); });
  // Adds to what is there instead of overwriting it, as frameworks do with the gradients of parameters.
  cheats.add_for(
      cheats.outputs(), "accumulates",
      [](const Call& call, std::size_t i) { call.copy(call.scratch, call.bytes(i), call.spec(i).bytes()); },
      [](const Call& call, std::size_t i) { call.add_scratch(i); });
}

}  // namespace

std::vector<Cheat> generic_cheats(const Pass& pass, const std::vector<std::string>& problems) {
  Cheats cheats(*versions_of(pass).front(), problems);
  cheats.add("honest", [](const Call& call) { call.launch_honest(); });
  add_null_answers(cheats);
  add_near_misses(cheats);
  add_rounded_inputs(cheats);
  add_memory_faults(cheats);
  add_conduct(cheats);
  return cheats.take();
}

}  // namespace ladder::wrong
