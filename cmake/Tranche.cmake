# How every target of Tranche is built: language, warnings, ccache, where programs land, and the three
# functions that the rooms' CMakeLists use: tranche_library, tranche_program, tranche_test.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# A cache that another clone in another folder hits: paths are made relative before they are hashed.
# Any one of these four missing costs all hits (measured: 0 of 120).
find_program(CCACHE ccache)
if(CCACHE)
  set(launcher ${CMAKE_COMMAND} -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      "CCACHE_SLOPPINESS=time_macros" ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
include(GoogleTest)

option(TRANCHE_WERROR "Warnings are errors (set by every preset)" OFF)
set(TRANCHE_SANITIZE "" CACHE STRING "Value of -fsanitize=, or empty")

add_library(tranche_warnings INTERFACE)
target_compile_options(tranche_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wformat=2 -Wimplicit-fallthrough
  -Wswitch-enum -Wduplicated-cond -Wlogical-op
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast>
  $<$<BOOL:${TRANCHE_WERROR}>:-Werror>)
target_compile_definitions(tranche_warnings INTERFACE
  _GLIBCXX_ASSERTIONS TRANCHE_VERSION="${PROJECT_VERSION}")
if(TRANCHE_SANITIZE)
  add_compile_options("-fsanitize=${TRANCHE_SANITIZE}" -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${TRANCHE_SANITIZE}")
endif()
# With AddressSanitizer, rooms tell tests/fuzz which of their branches an input took. Every other program takes the
# empty listener.
if(TRANCHE_SANITIZE MATCHES address)
  file(WRITE "${CMAKE_BINARY_DIR}/no_coverage.c" "void __sanitizer_cov_trace_pc(void);\nvoid __sanitizer_cov_trace_pc(void) {}\n")
  add_library(tranche_no_coverage STATIC "${CMAKE_BINARY_DIR}/no_coverage.c")
endif()

# tranche_library(NAME SOURCES file... [DEPENDS target...]): a static library of one room, `tranche_NAME`.
function(tranche_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(tranche_${name} STATIC ${arg_SOURCES})
  target_include_directories(tranche_${name} PUBLIC "${CMAKE_SOURCE_DIR}/src")
  target_link_libraries(tranche_${name} PUBLIC ${arg_DEPENDS} PRIVATE tranche_warnings)
  if(TARGET tranche_no_coverage)
    target_compile_options(tranche_${name} PRIVATE -fsanitize-coverage=trace-pc)
    target_link_libraries(tranche_${name} PUBLIC tranche_no_coverage)
  endif()
endfunction()

# tranche_program(NAME SOURCES file... [DEPENDS target...]): a program in build/<preset>/bin.
function(tranche_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/src")
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} tranche_warnings)
endfunction()

# tranche_test(NAME SOURCES file... [DEPENDS target...] [LABELS label...]): GoogleTest cases, each a
# ctest test of its own. One program a room, so that unity builds keep GoogleTest cheap.
function(tranche_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/src")
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} tranche_warnings GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 300)
endfunction()

# vendor_headers(API VERSIONS): which versions of the vendor's headers ./setup has fetched for tests, e.g.
# vendor_headers(cuda versions) -> 11.8;12.9;13.5, each in .headers/<api>-<version>. Empty: none.
function(vendor_headers api versions)
  file(GLOB folders CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}/.headers" "${CMAKE_SOURCE_DIR}/.headers/${api}-*")
  list(TRANSFORM folders REPLACE "^${api}-" "")
  set(${versions} ${folders} PARENT_SCOPE)
endfunction()

# skipped_test(NAME REASON): a test that cannot run here, counted by its name.
function(skipped_test name reason)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${reason}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")
endfunction()
