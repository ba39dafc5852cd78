// Cheats by conduct: launches with right answers, at least where a check looks.
#include <memory>

#include "tests/wrong/generic.h"

namespace ladder::wrong {
namespace {

// Cheats that return another launch's answer.

constexpr std::size_t kFlagBytes = 256;    // flags and digests, in front of the kept answer
constexpr std::size_t kLargeAnswer = 512;  // bytes: the check overwrites an eighth, which may miss a smaller answer
constexpr std::size_t kLargeInput = 1024;  // bytes: 64 sampled bytes are most of a smaller input
constexpr int kLeastProblems = 3;          // problems with a large input: in a single one a sample may be lucky
constexpr Byte kSet = 0x5a;                // flag value, neither poison nor 0

// Return the kept bytes if the flag is set, else keep the bytes.
struct KeepFirst {
  Byte* to;
  Byte* kept;
  const Byte* flag;
  __device__ void operator()(long long i) const {
    if (*flag == kSet) {
      to[i] = kept[i];
    } else {
      kept[i] = to[i];
    }
  }
};

struct SetFlag {
  Byte* flag;
  __device__ void operator()(long long) const { *flag = kSet; }
};

// scratch: [0] flag, [16] digest of this launch's inputs, [32] digest of the kept answer's inputs (byte offsets).
struct AddDigest {
  const Byte* from;
  long long bytes;
  Byte* scratch;
  bool first;
  __device__ void operator()(long long) const {
    auto* const digest = reinterpret_cast<unsigned long long*>(scratch + 16);
    unsigned long long sum = first ? 1 : *digest;
    for (long long i = 0; i < bytes; ++i) sum = (sum ^ from[i]) * 0x100000001b3u;
    *digest = sum;
    *scratch = sum == digest[2] ? kSet : 0;
  }
};

struct KeepDigest {
  Byte* scratch;
  __device__ void operator()(long long) const {
    auto* const digest = reinterpret_cast<unsigned long long*>(scratch + 16);
    digest[2] = digest[0];
  }
};

struct SetTo {
  Byte* flag;
  bool value;
  __device__ void operator()(long long) const { *flag = value; }
};

// Set the flag if a sampled byte differs from the kept byte.
struct AddSample {
  const Byte* kept;
  const Byte* from;
  long long bytes;
  Byte* differs;
  long long samples;
  __device__ void operator()(long long) const {
    for (long long i = 0; i < samples; ++i) {
      const long long at = i * bytes / samples;
      if (kept[at] != from[at]) *differs = 1;
    }
  }
};

struct CopyWhere {
  Byte* to;
  const Byte* from;
  const Byte* flag;
  __device__ void operator()(long long i) const {
    if (*flag) to[i] = from[i];
  }
};
void add_stale_answers(Cheats& cheats) {
  const auto copy_outputs = [](const Call& call, Byte* kept, bool to_kept) {
    for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
      if (!call.spec(i).is_written()) continue;
      call.copy(to_kept ? kept : call.bytes(i), to_kept ? call.bytes(i) : kept, call.spec(i).bytes());
      kept += aligned(call.spec(i).bytes());
    }
  };
  // Return the first answer again whenever the same buffers come back.
  cheats.add("replays_by_address", [copy_outputs, kept = std::make_shared<Kept>()](const Call& call) {
    if (kept->is_of(call, all_bytes(call.c))) return copy_outputs(call, kept->data(), false);
    call.launch_honest();
    copy_outputs(call, kept->data(), true);
  });
  // Return the previous launch's answer, and keep this launch's for the next.
  cheats.add("last_launch", [copy_outputs, kept = std::make_shared<Kept>()](const Call& call) {
    const bool is_first = !kept->is_of(call, all_bytes(call.c));
    call.launch_honest();
    copy_outputs(call, is_first ? kept->data() : call.scratch, true);
    if (is_first) return;
    copy_outputs(call, kept->data(), false);
    call.copy(kept->data(), call.scratch, all_bytes(call.c));
  });
  // Do a launch's work in the next launch, outside the measured time.
  cheats.add("deferred", [kept = std::make_shared<Kept>()](const Call& call) {
    if (kept->is_of(call, 0)) call.launch_honest();
  });
  // Keep the answer in a private workspace, where flags may stay from launch to launch.
  cheats.add_for_outputs("keeps_answer_private", [](const Call& call, std::size_t i) {
    for_each_index(call.spec(i).bytes(), call.stream,
                   KeepFirst{call.bytes(i), call.scratch + kFlagBytes, call.scratch});
    for_each_index(1, call.stream, SetFlag{call.scratch});
  });
  for (std::size_t i = 0; i < cheats.outputs().size(); ++i) cheats.last(i).version.def.private_workspace = true;
  // Keep the answer in the workspace, and return it again if the inputs' digest is unchanged.
  if (cheats.some_tensor([](const TensorSpec& s) { return s.is_written() && s.bytes() >= kLargeAnswer; })) {
    cheats.add("keeps_answer_by_digest", [copy_outputs](const Call& call) {
      for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
        if (!call.spec(i).is_read()) continue;
        for_each_index(1, call.stream,
                       AddDigest{call.bytes(i), static_cast<long long>(call.spec(i).bytes()), call.scratch, i == 0});
      }
      call.launch_honest();
      std::size_t at = kFlagBytes;
      for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
        if (!call.spec(i).is_written()) continue;
        for_each_index(call.spec(i).bytes(), call.stream, KeepFirst{call.bytes(i), call.scratch + at, call.scratch});
        at += aligned(call.spec(i).bytes());
      }
      for_each_index(1, call.stream, KeepDigest{call.scratch});
    });
  }
  // Keep one answer to a problem for all bindings, and return it again if 8 bytes of each large input are unchanged.
  struct Answers {
    std::shared_ptr<void> memory;
    std::string text;
  };
  if (cheats.problems_where([](const TensorSpec& s) { return s.role == Role::input && s.bytes() >= kLargeInput; }) >=
      kLeastProblems) {
    cheats.add("keeps_answer_by_sample", [answers = std::make_shared<Answers>()](const Call& call) {
      const auto large = [](const TensorSpec& s) { return s.role == Role::input && s.bytes() >= kLargeInput; };
      if (std::ranges::none_of(call.c.tensors, large)) return call.launch_honest();  // too small to sample
      const bool is_first = answers->text != call.c.text;
      if (is_first) *answers = {{backend::allocate(kFlagBytes + all_bytes(call.c)), backend::release}, call.c.text};
      auto* const flag = static_cast<Byte*>(answers->memory.get());
      const auto each_tensor = [&](bool written, const auto& f) {
        Byte* kept = flag + kFlagBytes;
        for (std::size_t i = 0; i < call.c.tensors.size(); kept += aligned(call.spec(i++).bytes())) {
          if (written ? call.spec(i).is_written() : !call.spec(i).is_written()) f(i, kept);
        }
      };
      for_each_index(1, call.stream, SetTo{flag, is_first});
      each_tensor(false, [&](std::size_t i, const Byte* kept) {
        if (large(call.spec(i)))
          for_each_index(1, call.stream,
                         AddSample{kept, call.bytes(i), static_cast<long long>(call.spec(i).bytes()), flag, 8});
      });
      call.launch_honest();
      each_tensor(true, [&](std::size_t i, Byte* kept) {
        for_each_index(call.spec(i).bytes(), call.stream, CopyWhere{kept, call.bytes(i), flag});
        for_each_index(call.spec(i).bytes(), call.stream, CopyBytes{call.bytes(i), kept});
      });
      each_tensor(false, [&](std::size_t i, Byte* kept) {
        for_each_index(call.spec(i).bytes(), call.stream, CopyWhere{kept, call.bytes(i), flag});
      });
    });
  }
  // Pack the first input once, and again if one of 64 sampled bytes has changed. A sample may have luck on all problems of a
  // small corpus.
  const std::string& first = cheats.inputs().front();
  const auto is_large_first = [&](const TensorSpec& s) { return s.name == first && s.bytes() >= kLargeInput; };
  if (cheats.problems_where(is_large_first) >= kLeastProblems) {
    cheats.add("packs_by_sample", [first, kept = std::make_shared<Kept>()](Call call) {
      const std::size_t i = call.find(first).value();
      const auto bytes = static_cast<long long>(call.spec(i).bytes());
      if (!kept->is_of(call, bytes + kFlagBytes)) call.copy(kept->data() + kFlagBytes, call.bytes(i), bytes);
      for_each_index(1, call.stream, SetTo{kept->data(), false});
      for_each_index(1, call.stream, AddSample{kept->data() + kFlagBytes, call.bytes(i), bytes, kept->data(), 64});
      for_each_index(bytes, call.stream, CopyWhere{kept->data() + kFlagBytes, call.bytes(i), kept->data()});
      call.pointers[i] = kept->data() + kFlagBytes;
      call.launch_honest();
    });
    cheats.last().any_problem = false;
  }
  // Keep a copy of an input while its address stays the same, although its values change.
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

// Cheats that are right where a check looks, and wrong elsewhere.

template <class Is>
struct ZeroWhere {
  Byte* at;
  const Byte* seen;
  Is is;
  __device__ void operator()(long long i) const {
    if (is(*seen)) at[i] = 0;
  }
};

void zero_outputs(const Call& call) {
  for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
    if (call.spec(i).is_written()) call.change(i, 0.0f, 0.0f);
  }
}

struct OtherByte {
  Byte byte;
  __device__ bool operator()(Byte seen) const { return seen != byte; }
};

template <class T>
struct AddUnlessNan {
  T* to;
  const float* from;
  __device__ void operator()(long long i) const {
    if (from[0] == from[0]) to[i] = from_float<T>(to_float(to[i]) + from[0]);
  }
};

constexpr Byte kNan = 0xff;  // last byte of poison and of a canary

void add_lookers(Cheats& cheats) {
  cheats.add_for(
      cheats.outputs(), "only_over_poison",
      [](const Call& call, std::size_t i) { call.copy(call.scratch, call.bytes(i), 1); },
      [](const Call& call, std::size_t i) {
        for_each_index(call.spec(i).bytes(), call.stream, ZeroWhere<OtherByte>{call.bytes(i), call.scratch, {kNan}});
      });
  cheats.add_for_outputs("only_between_canaries", [](const Call& call, std::size_t i) {
    for_each_index(call.spec(i).bytes(), call.stream, ZeroWhere<OtherByte>{call.bytes(i), call.bytes(i) - 1, {kNan}});
  });
  // Take a NaN in the workspace for a sum that has not begun.
  cheats.add_for_outputs("nan_is_unset", [](const Call& call, std::size_t i) {
    call.with_elements(i, [&]<class T>(T* y) {
      for_each_index(call.spec(i).elements(), call.stream,
                     AddUnlessNan<T>{y, reinterpret_cast<const float*>(call.scratch)});
    });
  });
  cheats.add("only_tested_problems", [problems = cheats.problems()](const Call& call) {
    call.launch_honest();
    const bool tested = std::ranges::any_of(problems, [&](const std::string& problem) {
      return call.c.pass->parse(problem).with_dtype(call.c.dtype).text == call.c.text;
    });
    if (!tested) zero_outputs(call);
  });
  cheats.last().any_problem = false;
  struct Count : Kept {
    int launches = 0;
  };
  cheats.add("only_64_launches", [count = std::make_shared<Count>()](const Call& call) {
    constexpr int kHonest = 64;
    if (!count->is_of(call, 0)) count->launches = 0;
    call.launch_honest();
    if (++count->launches > kHonest) zero_outputs(call);
  });
  cheats.add("sets_schedule", [](const Call& call) {
    backend::set_schedule(backend::schedules().back());
    call.launch_honest();
  });
  cheats.needs_emulator("a GPU has one schedule");
}

// All bound launches share one binding: the tensors of the last.
void add_shared_binding(Cheats& cheats) {
  cheats.add("shares_binding", [](const Call& call) { call.launch_honest(); });
  AnyVersionDef& def = cheats.last().version.def;
  def.plans = [plans = def.plans, last = std::make_shared<BoundLaunch>()](const Case& c) {
    std::vector<KernelPlan<AnyPass>> shared = plans(c);
    shared.front().bind = [bind = shared.front().bind, last](const Pointers& at, void* workspace) -> BoundLaunch {
      *last = bind(at, workspace);
      return [last](Stream stream) { (*last)(stream); };
    };
    return shared;
  };
}

// Borrow an input as scratch and restore it in the end.
void add_borrower(Cheats& cheats) {
  cheats.add_for(cheats.inputs(), "borrows",
                 [](const Call& call, std::size_t i) {
                   call.copy(call.scratch, call.bytes(i), 1);
                   for_each_index(1, call.stream, FlipBit{call.bytes(i)});
                   call.copy(call.bytes(i), call.scratch, 1);
                 },
                 {});
  for (std::size_t i = 0; i < cheats.inputs().size(); ++i) cheats.needs_emulator("inputs can be written on a GPU", i);
}

// Cheats whose work a timer would not see.
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

void add_conduct(Cheats& cheats) {
  add_stale_answers(cheats);
  add_lookers(cheats);
  add_borrower(cheats);
  add_shared_binding(cheats);
  add_time_cheats(cheats);
}

}  // namespace ladder::wrong
