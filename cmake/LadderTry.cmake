# What ./ladder try builds: of each layer try_<layer>, a candidate's process, and judge_<layer>. Nothing of it is compiled
# before it is asked for.
if(LADDER_PROGRAMS)
  set(sources bench/timer.cpp bench/statistics.cpp bench/timer_$<IF:$<BOOL:${LADDER_EMULATOR}>,emulator.cpp,cuda.cu>)
  ladder_object_library(ladder_try bench/untrusted/frames.cpp ${sources})
  ladder_object_library(ladder_try_child bench/untrusted/child.cpp core/check/kernel_under_test.cpp core/check/device_tensors.cpp)
  ladder_object_library(ladder_try_judge bench/untrusted/judge.cpp bench/untrusted/drawn.cpp bench/untrusted/remote.cpp
                        bench/untrusted/times.cpp bench/kept_plans.cpp bench/roofline.cpp io/aside_file.cpp)
  target_link_libraries(ladder_try_judge PUBLIC CLI11::CLI11)
  foreach(library ladder_try ladder_try_child ladder_try_judge)
    target_compile_options(${library} PRIVATE ${LADDER_QUICKLY})
    set_target_properties(${library} PROPERTIES EXCLUDE_FROM_ALL ON)
  endforeach()
endif()

# The process has the layer's problems and a stub where a candidate goes; no version, no reference, no comparison. The
# problems are compiled once more, as a version that does not compile must not stand in the way.
function(ladder_try layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS dev/${layer}/*.cpp)
  ladder_object_library(ladder_${layer}_problems ${sources})
  ladder_with_kernel_headers(ladder_${layer}_problems)
  add_executable(try_${layer} bench/untrusted/candidate.cu)
  ladder_kernels(bench/untrusted/candidate.cu)
  target_link_libraries(try_${layer} PRIVATE ladder_core ladder_try ladder_try_child ladder_${layer}_problems)
  add_executable(judge_${layer} $<TARGET_OBJECTS:ladder_try_judge>)
  target_link_libraries(judge_${layer} PRIVATE ladder_core ladder_check ladder_baseline ladder_try ladder_${layer}_problems
                                               ladder_${layer}_reference)
  foreach(library ladder_baseline_cudnn ladder_${layer}_cudnn)
    if(TARGET ${library})
      target_link_libraries(judge_${layer} PRIVATE ${library})
    endif()
  endforeach()
  set_target_properties(ladder_${layer}_problems try_${layer} judge_${layer} PROPERTIES EXCLUDE_FROM_ALL ON)
endfunction()
