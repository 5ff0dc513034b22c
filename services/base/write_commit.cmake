# Writes OUTPUT, a header with the commit of SOURCE, unless it says so already: "" outside a repository.
execute_process(
  COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=40 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT EXISTS "${SOURCE}/.git")
  set(commit "")
endif()
set(header "#define TALLY_COMMIT \"${commit}\"\n")
set(written "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" written)
endif()
if(NOT written STREQUAL header)
  file(WRITE "${OUTPUT}" "${header}")
endif()
