// How a launch behaves that gives right answers, at least where somebody looks.
#include <memory>

#include "tests/wrong/generic.h"

namespace ladder::wrong {
namespace {

// Answers of another launch.

constexpr std::size_t kFlagBytes = 256;    // before what is kept
constexpr std::size_t kLargeAnswer = 512;  // of fewer bytes an overwritten eighth may miss all
constexpr std::size_t kLargeInput = 1024;  // of fewer bytes 64 are most
constexpr int kLeastProblems = 3;          // with a large input: in one a sample may be lucky
constexpr Byte kSet = 0x5a;                // neither poison nor 0

// Gives what was kept, or keeps it.
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

// own: a flag; a digest from byte 16 on, of this launch; one from byte 32 on, of what is kept.
struct AddDigest {
  const Byte* from;
  long long bytes;
  Byte* own;
  bool first;
  __device__ void operator()(long long) const {
    auto* const digest = reinterpret_cast<unsigned long long*>(own + 16);
    unsigned long long sum = first ? 1 : *digest;
    for (long long i = 0; i < bytes; ++i) sum = (sum ^ from[i]) * 0x100000001b3u;
    *digest = sum;
    *own = sum == digest[2] ? kSet : 0;
  }
};

struct KeepDigest {
  Byte* own;
  __device__ void operator()(long long) const {
    auto* const digest = reinterpret_cast<unsigned long long*>(own + 16);
    digest[2] = digest[0];
  }
};

struct SetTo {
  Byte* flag;
  bool value;
  __device__ void operator()(long long) const { *flag = value; }
};

// Sets the flag where a sampled byte is another than the one kept.
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
  // Keeps its answer where flags may stay from launch to launch.
  cheats.add_for_outputs("keeps_answer_private", [](const Call& call, std::size_t i) {
    each(call.spec(i).bytes(), call.stream, KeepFirst{call.bytes(i), call.own + kFlagBytes, call.own});
    each(1, call.stream, SetFlag{call.own});
  });
  for (std::size_t i = 0; i < cheats.outputs().size(); ++i) cheats.last(i).version.def.private_workspace = true;
  // Keeps its answer in its workspace, and gives it again where a digest of the inputs beside it is the same.
  if (cheats.some_tensor([](const TensorSpec& s) { return s.is_written() && s.bytes() >= kLargeAnswer; })) {
    cheats.add("keeps_answer_by_digest", [copy_outputs](const Call& call) {
      for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
        if (!call.spec(i).is_read()) continue;
        each(1, call.stream, AddDigest{call.bytes(i), static_cast<long long>(call.spec(i).bytes()), call.own, i == 0});
      }
      call.launch_honest();
      std::size_t at = kFlagBytes;
      for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
        if (!call.spec(i).is_written()) continue;
        each(call.spec(i).bytes(), call.stream, KeepFirst{call.bytes(i), call.own + at, call.own});
        at += aligned(call.spec(i).bytes());
      }
      each(1, call.stream, KeepDigest{call.own});
    });
  }
  // Keeps its answer to a problem for every binding, and gives it again where 8 bytes of each large input are the same.
  struct Answers {
    std::shared_ptr<void> memory;
    std::string text;
  };
  if (cheats.problems_where([](const TensorSpec& s) { return s.role == Role::input && s.bytes() >= kLargeInput; }) >=
      kLeastProblems) {
    cheats.add("keeps_answer_by_sample", [answers = std::make_shared<Answers>()](const Call& call) {
      const auto large = [](const TensorSpec& s) { return s.role == Role::input && s.bytes() >= kLargeInput; };
      if (std::ranges::none_of(call.c.tensors, large)) return call.launch_honest();  // the sample would be half of it
      const bool is_first = answers->text != call.c.text;
      if (is_first) *answers = {{backend::allocate(kFlagBytes + all_bytes(call.c)), backend::release}, call.c.text};
      auto* const flag = static_cast<Byte*>(answers->memory.get());
      const auto each_tensor = [&](bool written, const auto& f) {
        Byte* kept = flag + kFlagBytes;
        for (std::size_t i = 0; i < call.c.tensors.size(); kept += aligned(call.spec(i++).bytes())) {
          if (written ? call.spec(i).is_written() : !call.spec(i).is_written()) f(i, kept);
        }
      };
      each(1, call.stream, SetTo{flag, is_first});
      each_tensor(false, [&](std::size_t i, const Byte* kept) {
        if (large(call.spec(i)))
          each(1, call.stream, AddSample{kept, call.bytes(i), static_cast<long long>(call.spec(i).bytes()), flag, 8});
      });
      call.launch_honest();
      each_tensor(true, [&](std::size_t i, Byte* kept) {
        each(call.spec(i).bytes(), call.stream, CopyWhere{kept, call.bytes(i), flag});
        each(call.spec(i).bytes(), call.stream, CopyBytes{call.bytes(i), kept});
      });
      each_tensor(false, [&](std::size_t i, Byte* kept) {
        each(call.spec(i).bytes(), call.stream, CopyWhere{kept, call.bytes(i), flag});
      });
    });
  }
  // Packs its largest input once, and again where one of 64 bytes of it is another.
  if (cheats.problems_where([](const TensorSpec& s) { return s.role == Role::input && s.bytes() >= kLargeInput; }) >=
      kLeastProblems) {
    cheats.add("packs_by_sample", [kept = std::make_shared<Kept>()](Call call) {
      std::size_t largest = 0;
      for (std::size_t i = 0; i < call.c.tensors.size(); ++i) {
        const bool is_larger =
            call.spec(largest).role != Role::input || call.spec(i).bytes() > call.spec(largest).bytes();
        if (call.spec(i).role == Role::input && is_larger) largest = i;
      }
      const auto bytes = static_cast<long long>(call.spec(largest).bytes());
      if (!kept->is_of(call, bytes + kFlagBytes)) call.copy(kept->data() + kFlagBytes, call.bytes(largest), bytes);
      each(1, call.stream, SetTo{kept->data(), false});
      each(1, call.stream, AddSample{kept->data() + kFlagBytes, call.bytes(largest), bytes, kept->data(), 64});
      each(bytes, call.stream, CopyWhere{kept->data() + kFlagBytes, call.bytes(largest), kept->data()});
      call.pointers[largest] = kept->data() + kFlagBytes;
      call.launch_honest();
    });
  }
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

// Right where somebody looks, and wrong elsewhere.

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

constexpr Byte kNan = 0xff;  // the last byte of poison, and of a canary

void add_lookers(Cheats& cheats) {
  cheats.add_for(
      cheats.outputs(), "only_over_poison",
      [](const Call& call, std::size_t i) { call.copy(call.own, call.bytes(i), 1); },
      [](const Call& call, std::size_t i) {
        each(call.spec(i).bytes(), call.stream, ZeroWhere<OtherByte>{call.bytes(i), call.own, {kNan}});
      });
  cheats.add_for_outputs("only_between_canaries", [](const Call& call, std::size_t i) {
    each(call.spec(i).bytes(), call.stream, ZeroWhere<OtherByte>{call.bytes(i), call.bytes(i) - 1, {kNan}});
  });
  // Takes a NaN in its workspace for a sum that nobody began.
  cheats.add_for_outputs("nan_is_unset", [](const Call& call, std::size_t i) {
    call.with_elements(i, [&]<class T>(T* y) {
      each(call.spec(i).elements(), call.stream, AddUnlessNan<T>{y, reinterpret_cast<const float*>(call.own)});
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

// Two that are bound are one: the tensors of the last.
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

// Sums in an input, which is as it was in the end.
void add_borrower(Cheats& cheats) {
  cheats.add_for(cheats.inputs(), "borrows",
                 [](const Call& call, std::size_t i) {
                   call.copy(call.own, call.bytes(i), 1);
                   each(1, call.stream, FlipBit{call.bytes(i)});
                   call.copy(call.bytes(i), call.own, 1);
                 },
                 {});
  for (std::size_t i = 0; i < cheats.inputs().size(); ++i) cheats.needs_emulator("inputs can be written on a GPU", i);
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

void add_conduct(Cheats& cheats) {
  add_stale_answers(cheats);
  add_lookers(cheats);
  add_borrower(cheats);
  add_shared_binding(cheats);
  add_time_cheats(cheats);
}

}  // namespace ladder::wrong
