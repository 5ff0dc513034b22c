# find_package(tally): the imported target tally::tally, headers <tally/tally.h> and <tally/plugin.h>.
include(${CMAKE_CURRENT_LIST_DIR}/tallyTargets.cmake)
