// Checkpoints: what is saved comes back, what is half there is never taken for a checkpoint, what does not fit is
// named.
#include "train/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/error.h"
#include "io/layout.h"
#include "tests/files.h"
#include "tests/support.h"

namespace ladder::train {
namespace {

namespace fs = std::filesystem;
using test::contents;
using test::message_of;
using test::put;
using test::Scratch;

const std::vector<ExpectedTensor>& model() {
  static const std::vector<ExpectedTensor> tensors = {{"time_embed.0.weight", {8, 4}},
                                                      {"time_embed.0.bias", {8}},
                                                      {"input_blocks.0.0.weight", {4, 3, 3, 3}},
                                                      {"input_blocks.7.1.qkv.weight", {12, 4, 1}},
                                                      {"out.2.weight", {3, 4, 3, 3}}};
  return tensors;
}

std::size_t elements(const io::Shape& shape) { return io::StoredTensor{"", Dtype::f32, shape}.elements(); }

Checkpoint made(std::int64_t step, const std::vector<ExpectedTensor>& tensors = model()) {
  std::mt19937 random(static_cast<unsigned>(test::seed()) + static_cast<unsigned>(step));
  std::normal_distribution<float> normal;
  Checkpoint checkpoint;
  checkpoint.metadata = {{"step", std::to_string(step)},
                         {"images", std::to_string(32 * step)},
                         {"seed", "18446744073709551615"},
                         {"config", R"({"channels": 64, "mult": [1, 2]})"},
                         {"promoted", "conv3x3/fprop  n32 h64  v09\nline two\n"}};
  for (const ExpectedTensor& expected : tensors) {
    CheckpointTensor tensor{expected.name, expected.shape, {}, {}, {}, {}};
    for (auto* values : {&tensor.weight, &tensor.ema, &tensor.m, &tensor.v}) {
      values->resize(elements(expected.shape));
      for (float& value : *values) value = normal(random);
    }
    checkpoint.tensors.push_back(std::move(tensor));
  }
  return checkpoint;
}

void expect_equal(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    EXPECT_EQ(a.tensors[i].shape, b.tensors[i].shape);
    EXPECT_EQ(a.tensors[i].weight, b.tensors[i].weight);
    EXPECT_EQ(a.tensors[i].ema, b.tensors[i].ema);
    EXPECT_EQ(a.tensors[i].m, b.tensors[i].m);
    EXPECT_EQ(a.tensors[i].v, b.tensors[i].v);
  }
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

class CheckpointTest : public testing::Test {
 protected:
  void expect_unreadable(const fs::path& path, const std::vector<std::string>& words) {
    const std::string message = message_of<Failure>([&] { read_checkpoint(path); });
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), message.npos) << "not '" << word << "': " << message;
  }

  Scratch scratch_;
  fs::path run_ = scratch_ / "run";
  fs::path folder_ = run_ / "checkpoints";
};

TEST_F(CheckpointTest, WhatIsSavedComesBack) {
  Checkpoint saved = made(1000);
  saved.tensors[0].weight[3] = -0.0f;
  saved.tensors[0].weight[4] = 0x1p-140f;
  const fs::path step = write_checkpoint(run_, saved);
  EXPECT_EQ(step, folder_ / "step_00001000");
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00001000"}));
  EXPECT_EQ(names_in(step), (Names{"ema.safetensors", "model.safetensors", "optimizer.safetensors"}));
  for (const fs::path& path : {step, fs::path(step.string() + "/"), run_, folder_, fs::path(run_.string() + "/")}) {
    const Checkpoint read = read_checkpoint(path);
    expect_equal(read, saved);
    EXPECT_EQ(read_metadata(path), saved.metadata);
    EXPECT_TRUE(std::signbit(read.tensors[0].weight[3])) << "-0 compares equal to 0";
    expect("it", read, model());
  }
  EXPECT_EQ(number_in(read_metadata(run_), "images"), 32000);
  EXPECT_EQ(text_in(read_metadata(run_), "seed"), "18446744073709551615");
}

TEST_F(CheckpointTest, FilesHoldWhatPyTorchLoads) {
  const Checkpoint saved = made(1);
  const fs::path step = write_checkpoint(run_, saved);
  const io::SafetensorsFile weights(step / "model.safetensors"), optimizer(step / "optimizer.safetensors");
  ASSERT_EQ(weights.tensors().size(), model().size()) << "a strict load_state_dict wants no other";
  for (std::size_t i = 0; i < model().size(); ++i) {
    EXPECT_EQ(weights.tensors()[i].name, model()[i].name);
    EXPECT_EQ(weights.tensors()[i].shape, model()[i].shape);
    EXPECT_EQ(optimizer.floats("m." + model()[i].name), saved.tensors[i].m);
    EXPECT_EQ(optimizer.floats("v." + model()[i].name), saved.tensors[i].v);
  }
  EXPECT_EQ(weights.metadata().at("schema"), kCheckpointSchema);
  EXPECT_EQ(weights.metadata().at("contents"), "model");

  const auto imported = import_weights(step / "ema.safetensors", model());
  ASSERT_EQ(imported.size(), model().size());
  for (const CheckpointTensor& tensor : saved.tensors) EXPECT_EQ(imported.at(tensor.name), tensor.ema);
}

TEST_F(CheckpointTest, TheNewestIsThatWrittenLast) {
  const auto newest = [&] { return find_checkpoint(run_).filename().string(); };
  for (const int step : {1000, 3000, 123456789}) {
    write_checkpoint(run_, made(step));
    EXPECT_EQ(newest(), fmt::format("step_{:08}", step));
  }
  write_checkpoint(run_, made(2000));  // resumed from 1000
  EXPECT_EQ(contents(folder_ / "latest"), "step_00002000\n");
  EXPECT_EQ(newest(), "step_00002000");

  fs::remove(folder_ / "step_00002000" / "optimizer.safetensors");
  EXPECT_EQ(newest(), "step_123456789") << "of those that are whole, the one with the highest step";
  for (const char* text : {"", "step_00000001\n", "rubbish", "../../x", "step_1000\n"}) {
    put(folder_ / "latest", text);
    EXPECT_EQ(newest(), "step_123456789") << text;
  }
  put(folder_ / "latest", "step_00001000");
  EXPECT_EQ(newest(), "step_00001000");
  fs::remove(folder_ / "latest");
  EXPECT_EQ(newest(), "step_123456789");
}

TEST_F(CheckpointTest, TheSameStepIsReplaced) {
  write_checkpoint(run_, made(7));
  Checkpoint other = made(7);
  other.metadata["images"] = "99";
  other.tensors[1].ema[0] = 42;
  put(folder_ / "step_00000007" / "stray", "of the old one");
  write_checkpoint(run_, other);
  expect_equal(read_checkpoint(run_), other);
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000007"}));
  EXPECT_EQ(test::count_in(folder_ / "step_00000007"), 3);
}

TEST_F(CheckpointTest, NoMoreAreKeptThanAskedFor) {
  for (const int step : {5, 10, 20, 40}) write_checkpoint(run_, made(step));
  prune(run_, 4);
  EXPECT_EQ(test::count_in(folder_), 5);
  prune(run_, 2);
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000020", "step_00000040"}));
  write_checkpoint(run_, made(1));  // the newest, though of the lowest step
  prune(run_, 2);
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000001", "step_00000040"}));
  prune(run_, 1);
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000001"}));
  prune(run_, 1);
  expect_equal(read_checkpoint(run_), made(1));
  EXPECT_THROW(prune(run_, 0), UsageError);
  EXPECT_THROW(prune(scratch_ / "none", 1), Failure);
}

// Weights and average of this model fit into files of this size, its two moments do not.
constexpr std::size_t kLimit = 8000;

std::vector<ExpectedTensor> larger_model() { return {{"w", {1500}}}; }

TEST_F(CheckpointTest, AFullDiskLeavesNoHalfCheckpoint) {
  const Checkpoint old = made(10, larger_model());
  for (const bool same_step : {false, true}) {
    write_checkpoint(run_, old);
    const test::Ended ended = test::with_file_limit(
        kLimit, false, [&] { write_checkpoint(run_, made(same_step ? 10 : 20, larger_model())); });
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.err.find("optimizer.safetensors' was not written: File too large"), std::string::npos) << ended.err;
    EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000010"}));
    expect_equal(read_checkpoint(run_), old);
  }
}

TEST_F(CheckpointTest, AKilledWriterLeavesNoHalfCheckpoint) {
  const Checkpoint old = made(10, larger_model()), next = made(20, larger_model());
  write_checkpoint(run_, old);
  const test::Ended ended = test::with_file_limit(kLimit, true, [&] { write_checkpoint(run_, next); });
  EXPECT_EQ(ended.code, 128 + SIGXFSZ) << ended.err;
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000010", "step_00000020.partial"}));
  EXPECT_TRUE(fs::exists(folder_ / "step_00000020.partial" / "ema.safetensors"));
  expect_equal(read_checkpoint(run_), old);

  write_checkpoint(run_, next);
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000010", "step_00000020"}));
  expect_equal(read_checkpoint(run_), next);
}

TEST_F(CheckpointTest, AKilledFirstWriterLeavesNothingToRead) {
  test::with_file_limit(kLimit, true, [&] { write_checkpoint(run_, made(10, larger_model())); });
  EXPECT_EQ(names_in(folder_), (Names{"step_00000010.partial"}));
  expect_unreadable(run_, {"'" + run_.string() + "' holds no checkpoint", "step_00001000"});
}

TEST_F(CheckpointTest, WhoIsKilledBetweenTheTwoRenamesLosesNothing) {
  const Checkpoint old = made(10);
  write_checkpoint(run_, old);
  fs::rename(folder_ / "step_00000010", folder_ / "step_00000010.replaced");
  put(folder_ / "latest.77.partial", "half a pointer");
  write_checkpoint(run_, made(20));
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000010", "step_00000020"}));
  expect_equal(read_checkpoint(folder_ / "step_00000010"), old);

  fs::create_directory(folder_ / "step_00000010.replaced");  // killed after the second
  write_checkpoint(run_, made(20));
  EXPECT_EQ(names_in(folder_), (Names{"latest", "step_00000010", "step_00000020"}));
  expect_equal(read_checkpoint(folder_ / "step_00000010"), old);
}

TEST_F(CheckpointTest, WhereNothingCanBeWrittenIsSaid) {
  put(run_, "a file");
  const std::string message = message_of<Failure>([&] { write_checkpoint(run_, made(1)); });
  EXPECT_NE(message.find("step_00000001' was not written: Not a directory"), std::string::npos) << message;
  fs::remove(run_);

  Checkpoint wrong = made(1);
  wrong.tensors[2].v.pop_back();
  EXPECT_NE(message_of<Failure>([&] { write_checkpoint(run_, wrong); })
                .find("'v.input_blocks.0.0.weight' [4, 3, 3, 3] has "
                      "107 values"),
            std::string::npos);
  wrong = made(1);
  wrong.metadata["step"] = "-1";
  EXPECT_THROW(write_checkpoint(run_, wrong), Failure);
  wrong.metadata.erase("step");
  EXPECT_THROW(write_checkpoint(run_, wrong), Failure);
  EXPECT_EQ(test::count_in(folder_), 0) << "something was left";
}

TEST_F(CheckpointTest, WhatIsNoCheckpointIsNamed) {
  expect_unreadable(run_, {"no such folder"});
  fs::create_directories(run_ / "checkpoints");
  expect_unreadable(run_, {"holds no checkpoint"});
  const fs::path step = write_checkpoint(run_, made(1));
  expect_unreadable(step / "model.safetensors", {"is a file", "checkpoint's folder"});
  for (const char* file : {"model.safetensors", "ema.safetensors", "optimizer.safetensors"}) {
    fs::rename(step / file, scratch_ / file);
    expect_unreadable(step, {"step_00000001' is no whole checkpoint", std::string("no ") + file});
    expect_unreadable(run_, {"'" + run_.string() + "' holds no whole checkpoint", std::string("no ") + file});
    fs::rename(scratch_ / file, step / file);
  }
  for (const char* file : {"model.safetensors", "ema.safetensors", "optimizer.safetensors"}) {
    const std::string complete = contents(step / file);
    put(step / file, complete.substr(0, complete.size() - 1));
    expect_unreadable(step, {file, "cut short"});
    std::string flipped = complete;
    flipped[flipped.size() - 2] ^= 1;
    put(step / file, flipped);
    expect_unreadable(step, {file, "is damaged"});
    put(step / file, complete);
  }
  expect_equal(read_checkpoint(step), made(1));
}

// The text in front of the tensors is damaged, where no digest looks.
TEST_F(CheckpointTest, DamagedOffsetsOfTheNewestLeadToTheOneBefore) {
  write_checkpoint(run_, made(1));
  const fs::path model = write_checkpoint(run_, made(2)) / "model.safetensors";
  const std::string good = contents(model);
  const auto begin = good.find('[', good.rfind("data_offsets", good.find("input_blocks.7.1.qkv.weight") + 60));
  const auto length = good.find(']', begin) + 1 - begin;
  for (const std::string wrong : {"[-1,9]", "[9,1.5]", "[\"8\",9]", "[null,9]"}) {
    ASSERT_LE(wrong.size(), length);
    std::string bad = good;
    put(model, bad.replace(begin, length, wrong + std::string(length - wrong.size(), ' ')));
    std::vector<std::string> damaged;
    expect_equal(read_newest(run_, damaged), made(1));
    ASSERT_EQ(damaged.size(), 1u);
    EXPECT_TRUE(test::has(damaged[0], model.string()));
    EXPECT_TRUE(test::has(damaged[0], "instead of a whole number"));
    EXPECT_EQ(read_newest_metadata(run_), made(1).metadata);
  }
}

// A damaged step would train steps once more that are done.
TEST_F(CheckpointTest, AStepThatIsNotThatOfItsFolderIsNamed) {
  write_checkpoint(run_, made(1));
  const fs::path newest = write_checkpoint(run_, made(2));
  for (const char* file : {"model.safetensors", "ema.safetensors", "optimizer.safetensors"}) {
    std::string text = contents(newest / file);
    const auto at = text.find(R"("step":"2")");
    ASSERT_NE(at, std::string::npos);
    put(newest / file, text.replace(at, 10, R"("step":"0")"));
  }
  expect_unreadable(newest, {"model.safetensors' is of step '0', in the folder of step 2"});
  std::vector<std::string> damaged;
  expect_equal(read_newest(run_, damaged), made(1));
}

TEST_F(CheckpointTest, FilesThatDoNotBelongTogetherAreNamed) {
  const fs::path a = write_checkpoint(run_, made(1)), b = write_checkpoint(run_, made(2));
  const auto replaced = [&](const fs::path& from, const char* to, const std::vector<std::string>& words) {
    const std::string old = contents(a / to);
    put(a / to, contents(from));
    expect_unreadable(a, words);
    put(a / to, old);
  };
  replaced(b / "ema.safetensors", "ema.safetensors", {"ema.safetensors", "different checkpoints"});
  replaced(b / "optimizer.safetensors", "optimizer.safetensors", {"optimizer.safetensors", "different checkpoints"});
  replaced(a / "model.safetensors", "ema.safetensors", {"ema.safetensors", "contents are 'model'"});

  // Files made by hand, right but for one thing.
  const fs::path other = scratch_ / "other";
  const auto save = [&](const std::vector<io::StoredTensor>& tensors, const std::string& key,
                        const std::string& value) {
    io::Metadata metadata = io::SafetensorsFile(a / "ema.safetensors").metadata();
    if (!key.empty()) metadata[key] = value;
    if (value.empty()) metadata.erase(key);
    io::SafetensorsWriter writer(other, tensors, metadata);
    for (const io::StoredTensor& tensor : tensors)
      writer.append(std::vector<char>(tensor.bytes()).data(), tensor.bytes());
    writer.finish();
  };
  std::vector<io::StoredTensor> right;
  for (const ExpectedTensor& tensor : model()) right.push_back({tensor.name, Dtype::f32, tensor.shape});
  const char* ema = "ema.safetensors";
  save(right, "schema", "ladder.checkpoint/2");
  replaced(other, ema, {ema, "another version", "'ladder.checkpoint/2'", "'ladder.checkpoint/1'"});
  save(right, "schema", "");
  replaced(other, ema, {ema, "no schema"});
  std::vector<io::StoredTensor> wrong = right;
  wrong.pop_back();
  save(wrong, "", "x");
  replaced(other, ema, {ema, "'out.2.weight' is missing"});
  wrong = right;
  wrong[1].dtype = Dtype::bf16;
  save(wrong, "", "x");
  replaced(other, ema, {ema, "'time_embed.0.bias' in bf16", "fp32"});
  expect_equal(read_checkpoint(a), made(1));
}

TEST(Expect, TheOrderDoesNotMatter) {
  std::vector<ExpectedTensor> reversed(model().rbegin(), model().rend());
  expect("it", reversed, model());
  expect("it", std::vector<ExpectedTensor>{}, {});
}

TEST(Expect, WhatDiffersIsNamed) {
  const auto message = [](const std::vector<ExpectedTensor>& found) {
    return message_of<Failure>([&] { expect("'it'", found, model()); });
  };
  std::vector<ExpectedTensor> found = model();
  found.erase(found.begin() + 1);
  EXPECT_EQ(message(found), "'it' does not fit the model: tensor 'time_embed.0.bias' is missing");
  found.erase(found.begin() + 1);
  EXPECT_EQ(message(found), "'it' does not fit the model: tensor 'time_embed.0.bias' and 1 more are missing");
  found = model();
  found.push_back({"out.3.bias", {3}});
  EXPECT_EQ(message(found), "'it' does not fit the model: tensor 'out.3.bias' is not the model's");
  found = model();
  found[2].shape = {8, 3, 3, 3};
  EXPECT_EQ(
      message(found),
      "'it' does not fit the model: tensor 'input_blocks.0.0.weight' has shape [8, 3, 3, 3] instead of [4, 3, 3, 3]");
  found[0].shape = {};
  found.back().name = "out.3.weight";
  EXPECT_EQ(message(found),
            "'it' does not fit the model: tensor 'out.2.weight' is missing; tensor 'out.3.weight' is not the model's; "
            "tensor 'time_embed.0.weight' has shape [] instead of [8, 4], and 1 more differ");
}

TEST(Expect, AnOfficialCheckpointIsRecognised) {
  for (const char* name :
       {"input_blocks.3.0.op.weight", "output_blocks.2.2.conv.weight", "output_blocks.3.1.conv.weight"}) {
    std::vector<ExpectedTensor> found = model();
    found.push_back({name, {64, 64, 3, 3}});
    const std::string message = message_of<Failure>([&] { expect("it", found, model()); });
    EXPECT_NE(message.find(fmt::format("convolutions in its up- and downsampling ({})", name)), message.npos)
        << message;
  }
  std::vector<ExpectedTensor> found = model();
  found.push_back({"label_emb.weight", {1000, 256}});
  EXPECT_NE(message_of<Failure>([&] { expect("it", found, model()); }).find("conditioned on classes"),
            std::string::npos);
}

TEST_F(CheckpointTest, WeightsAloneAreImported) {
  const fs::path file = scratch_ / "weights.safetensors";
  const std::vector<float> values = {1.5f, -2.0f, 0.25f, 1024.0f};
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::i32}) {
    io::SafetensorsWriter writer(file, {{"a", dtype, {2, 2}}});
    std::vector<unsigned char> stored(4 * size_of(dtype));
    encode(dtype, values.data(), 4, stored.data());
    writer.append(stored.data(), stored.size());
    writer.finish();
    if (dtype == Dtype::i32) {
      EXPECT_THROW(import_weights(file, {{"a", {2, 2}}}), Failure);
    } else {
      EXPECT_EQ(import_weights(file, {{"a", {2, 2}}}), (std::map<std::string, std::vector<float>>{{"a", values}}));
    }
  }
  const std::string message = message_of<Failure>([&] { import_weights(file, {{"a", {4}}}); });
  EXPECT_EQ(message,
            fmt::format("'{}' does not fit the model: tensor 'a' has shape [2, 2] instead of [4]", file.string()));
}

TEST(MetadataValues, WhatIsNotThereOrNoNumberIsNamed) {
  const io::Metadata metadata = {
      {"step", "12"}, {"name", "12 "}, {"large", "9223372036854775808"}, {"empty", ""}, {"less", "-3"}};
  EXPECT_EQ(number_in(metadata, "step"), 12);
  for (const char* key : {"name", "large", "empty", "less", "none"}) {
    const std::string message = message_of<Failure>([&] { number_in(metadata, key); });
    EXPECT_NE(message.find(key), message.npos) << message;
  }
  EXPECT_EQ(text_in(metadata, "name"), "12 ");
}

TEST(Layout, ConvolutionsAreTurnedAndTheRestIsNot) {
  const io::Shape shape = {2, 3, 3, 2};  // [o, i, r, s]; r and s differ, so that they cannot be taken for each other
  std::vector<float> oihw(36);
  for (std::size_t i = 0; i < oihw.size(); ++i) oihw[i] = static_cast<float>(i);
  const std::vector<float> krsc = io::to_krsc(oihw, shape);
  ASSERT_EQ(krsc.size(), oihw.size());
  for (std::size_t o = 0; o < 2; ++o) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t r = 0; r < 3; ++r) {
        for (std::size_t s = 0; s < 2; ++s) {
          EXPECT_EQ(krsc[((o * 3 + r) * 2 + s) * 3 + i], oihw[((o * 3 + i) * 3 + r) * 2 + s]);
        }
      }
    }
  }
  EXPECT_EQ(io::from_krsc(krsc, shape), oihw);
  for (const io::Shape& other : {io::Shape{36}, io::Shape{6, 6}, io::Shape{9, 4, 1}, io::Shape{9, 4, 1, 1}}) {
    EXPECT_EQ(io::to_krsc(oihw, other), oihw) << io::to_string(other);
    EXPECT_EQ(io::from_krsc(oihw, other), oihw) << io::to_string(other);
  }
  EXPECT_THROW(io::to_krsc(oihw, {2, 3, 3, 3}), Failure);
}

}  // namespace
}  // namespace ladder::train
