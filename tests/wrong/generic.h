// List of the generic cheats, which know nothing of a pass but its tensors.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/wrong/call.h"

namespace ladder::wrong {

// Returns a tensor's bytes, or 0 if the case has no such tensor.
inline std::size_t bytes_of(const Case& c, const std::string& tensor) {
  const auto spec = std::ranges::find(c.tensors, tensor, &TensorSpec::name);
  return spec == c.tensors.end() ? 0 : spec->bytes();
}

// Builder of a pass's list of generic cheats.
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
      auto* const scratch = static_cast<Byte*>(workspace) + honest_bytes(c);
      body({*v, c, {pointers, pointers + c.tensors.size()}, workspace, scratch, stream});
    };
    // Workspace for a copy of every tensor, for cheats that need one.
    WorkspaceBytes bytes = [honest_bytes](const Case& c) { return honest_bytes(c) + all_bytes(c); };
    Supports supports = [v = &honest_, needs_streams](const Case& c) {
      const bool on_emulator = backend::kind() == backend::Kind::emulator;
      return needs_streams && on_emulator ? "the emulator has no streams" : v->supports(c);
    };
    list_.push_back(make_cheat(*honest_.pass, 'g', static_cast<int>(list_.size()) + 1, name,
                               dtypes.empty() ? honest_.def.dtypes : dtypes, launch, bytes, supports));
  }

  // Add a cheat "<name>_<tensor>" for each tensor: an honest launch with before(tensor) and after(tensor) around it.
  using Spoil = std::function<void(const Call&, std::size_t tensor)>;
  void add_for(const std::vector<std::string>& tensors, const std::string& name, const Spoil& before,
               const Spoil& after) {
    for (const std::string& tensor : tensors) {
      add(name + '_' + tensor, [tensor, before, after](const Call& call) {
        const auto i = call.find(tensor);
        if (before) before(call, *i);
        call.launch_honest();
        if (after) after(call, *i);
      });
      // A case without the tensor is not supported: the cheat would equal the honest version, and testing that is slow.
      list_.back().version.def.supports = [tensor, others = list_.back().version.def.supports](const Case& c) {
        return bytes_of(c, tensor) > 0 ? others(c) : "it has no such tensor";
      };
    }
  }
  void add_for_outputs(const std::string& name, const Spoil& after) { add_for(outputs_, name, {}, after); }

  // Returns the number of problems that have a tensor with is(tensor).
  auto problems_where(const std::function<bool(const TensorSpec&)>& is) const {
    return std::ranges::count_if(problems_, [&](const std::string& problem) {
      return std::ranges::any_of(case_of(problem, honest_.def.dtypes.front()).tensors, is);
    });
  }
  bool some_tensor(const std::function<bool(const TensorSpec&)>& is) const { return problems_where(is) > 0; }

  // Returns the dtypes in which some problem has both tensors, equally large.
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

  // Returns the outputs that have several elements in some problem; a single element equals its mean.
  std::vector<std::string> outputs_of_several() const {
    std::vector<std::string> found = outputs_;
    std::erase_if(found, [&](const std::string& output) {
      return !some_tensor([&](const TensorSpec& spec) { return spec.name == output && spec.elements() > 1; });
    });
    return found;
  }

  // Returns true if the honest version runs an fp32 problem with an fp32 input.
  bool has_fp32_input() const {
    return honest_.has(Dtype::f32) &&
           some_tensor([](const TensorSpec& spec) { return !spec.is_written() && spec.dtype == Dtype::f32; });
  }
  const std::vector<std::string>& problems() const { return problems_; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  std::vector<Cheat> take() { return std::move(list_); }
  // Returns the i-th of the added cheats, counted from the last.
  Cheat& last(std::size_t i = 0) { return *(list_.rbegin() + static_cast<std::ptrdiff_t>(i)); }
  void needs_emulator(const char* why, std::size_t i = 0) {
    last(i).version.def.supports = [why, supports = last(i).version.def.supports](const Case& c) {
      return backend::kind() == backend::Kind::emulator ? supports(c) : why;
    };
  }

 private:
  Case case_of(const std::string& problem, Dtype dtype) const { return honest_.pass->parse(problem).with_dtype(dtype); }

  const Version& honest_;
  std::vector<std::string> problems_;
  std::vector<std::string> inputs_, outputs_;  // names
  std::vector<Cheat> list_;
};

// Add the cheats of conduct.cu: another launch's answers, kernels that are right where a check looks, work hidden from
// timers.
void add_conduct(Cheats& cheats);

}  // namespace ladder::wrong
