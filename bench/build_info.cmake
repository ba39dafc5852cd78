# Run at every build: writes OUT, a header that says from which commit and how the programs were built. The file is
# touched only if that changed. Outside a git checkout the environment's LADDER_COMMIT and LADDER_DIRTY (0 or 1) count.
set(commit "$ENV{LADDER_COMMIT}")
set(dirty "$ENV{LADDER_DIRTY}")
if(NOT commit)
  set(commit unknown)
  set(dirty 1)
  find_program(GIT git)
  if(GIT)
    execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE head RESULT_VARIABLE failed
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
      set(commit ${head})
      # Records are made by running, so they do not make the sources dirty.
      execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain -- . :!results OUTPUT_VARIABLE changes ERROR_QUIET)
      set(dirty 0)
      if(changes)
        set(dirty 1)
      endif()
    endif()
  endif()
endif()
if(dirty)
  set(dirty true)
else()
  set(dirty false)
endif()

file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#pragma once

namespace ladder::build_info {

inline constexpr const char* kCommit = "@commit@";
inline constexpr bool kDirty = @dirty@;
inline constexpr const char* kBuild = "@BUILD@";
inline constexpr const char* kCompiler = "@COMPILER@";
inline constexpr const char* kFlags = "@FLAGS@";

}  // namespace ladder::build_info
]] @ONLY)
