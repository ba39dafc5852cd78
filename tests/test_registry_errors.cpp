// A program with version files that break the rule must refuse to start: this is one.
#include <gtest/gtest.h>

#include "core/error.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder {
namespace {

void launch(const conv3x3::Problem&, const conv3x3::Fprop::Tensors&, void*, Stream) {}

// Functions of another signature are the compiler's to refuse.
template <class F>
concept CanBeLaunch = requires(F f) {
  VersionDef<conv3x3::Fprop>{.launch = f};
};
template <class F>
concept CanBeSupports = requires(F f) {
  VersionDef<conv3x3::Fprop>{.supports = f};
};
static_assert(CanBeLaunch<decltype(&launch)> && !CanBeLaunch<void (*)(const conv3x3::Problem&, Stream)>);
static_assert(!CanBeLaunch<void (*)(const conv3x3::Problem&, const conv3x3::Dgrad::Tensors&, void*, Stream)>);
static_assert(CanBeSupports<const char* (*)(const conv3x3::Problem&)> && !CanBeSupports<decltype(&launch)>);

struct Broken : conv3x3::Fprop {
  static constexpr const char* kName = "broken";
};

TEST(RegistryErrors, MalformedAndRepeatedNamesAreToldByFile) {
  EXPECT_NO_THROW(all_versions());
  EXPECT_TRUE(register_version<Broken>("a/v01_good.cu", {.launch = launch, .dtypes = {}}));
  EXPECT_NO_THROW(all_versions());
  EXPECT_FALSE(register_version<Broken>("a/v1_short.cu", {.launch = launch, .dtypes = {}}));
  EXPECT_FALSE(register_version<Broken>("a/v02_neither.cu", {.dtypes = {}}));
  EXPECT_FALSE(register_version<Broken>("b/v01_again.cu", {.launch = launch, .dtypes = {}}));
  EXPECT_FALSE(register_version<Broken>("a/v03_loose.cu", {.launch = launch, .dtypes = {}, .error_growth = 600}));
  try {
    all_versions();
    FAIL() << "no error";
  } catch (const Failure& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("a/v1_short.cu: a version's file is named like v07_some_idea.cu"), std::string::npos)
        << message;
    EXPECT_NE(message.find("a/v02_neither.cu: either .launch or .plans"), std::string::npos) << message;
    EXPECT_NE(message.find("a/v03_loose.cu: .error_growth is from 1 to 16"), std::string::npos) << message;
    EXPECT_NE(message.find("b/v01_again.cu: the number 1 is taken by a/v01_good.cu"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace ladder
