# What bench programs and the versions in them have that other targets have not.

# `target` holds versions: in a build with LADDER_KEEP_GOING=1 in the environment one that does not compile is left out of
# the programs and named, and stops no other. To be called after other launchers of the target are set.
function(ladder_keep_going target)
  find_package(Python3 COMPONENTS Interpreter)
  if(NOT Python3_FOUND)
    return()
  endif()
  foreach(language CXX CUDA)
    get_target_property(launcher ${target} ${language}_COMPILER_LAUNCHER)
    if(NOT launcher)
      set(launcher)
    endif()
    list(PREPEND launcher ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/dev/launch_version.py)
    set_target_properties(${target} PROPERTIES ${language}_COMPILER_LAUNCHER "${launcher}")
  endforeach()
endfunction()

# build/<program> is the one that was linked last of build/cuda's and build/emulator's.
function(ladder_link_from_build program)
  cmake_path(GET PROJECT_BINARY_DIR FILENAME preset)
  if(preset MATCHES "^(cuda|emulator)$" AND PROJECT_BINARY_DIR STREQUAL "${PROJECT_SOURCE_DIR}/build/${preset}")
    add_custom_command(TARGET ${program} POST_BUILD VERBATIM COMMAND
                       ${CMAKE_COMMAND} -E create_symlink ${preset}/${program} ${PROJECT_SOURCE_DIR}/build/${program})
  endif()
endfunction()
