// main() of every test program: GoogleTest's flags, and one closing line that a driver can add up.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "core/program.h"
#include "tests/support.h"

namespace {

// Every reason for a skip once, with the number of tests it stopped.
void print_skips(const testing::UnitTest& unit_test) {
  std::map<std::string, int> reasons;
  for (int s = 0; s < unit_test.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *unit_test.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestResult& result = *suite.GetTestInfo(t)->result();
      for (int p = 0; result.Skipped() && p < result.total_part_count(); ++p) {
        const testing::TestPartResult& part = result.GetTestPartResult(p);
        if (part.skipped()) ++reasons[part.message()];
      }
    }
  }
  for (const auto& [reason, count] : reasons) std::printf("skipped %d: %s\n", count, reason.c_str());
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) {
    std::fprintf(stderr, "%s: unknown argument '%s'; --help lists the flags\n", argv[0], argv[1]);
    return 2;
  }
  ladder::test::set_program(argv[0]);
  ladder::test::register_tests();

  const int status = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) return status;

  const testing::UnitTest& unit_test = *testing::UnitTest::GetInstance();
  print_skips(unit_test);
  const int passed = unit_test.successful_test_count();
  const int failed = unit_test.failed_test_count();
  const int skipped = unit_test.skipped_test_count();
  const bool ran_none = passed + failed + skipped == 0;
  if (ran_none) std::fprintf(stderr, "no test ran: the filter matches none\n");
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return status != 0 || ran_none ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ladder::program_status(argv[0], [&] { return run(argc, argv); });
}
