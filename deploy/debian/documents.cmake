# Runs in cpack between installation into the stage and packing: what every Debian package has beside its files.
set(ENV{DEB_HOST_ARCH} ${CPACK_DEBIAN_PACKAGE_ARCHITECTURE}) # for dpkg-shlibdeps
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(stage ${CPACK_TEMPORARY_DIRECTORY}/${component})
  set(documents ${stage}/usr/share/doc/${name})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright ${documents}/copyright COPYONLY)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/changelog.in ${documents}/changelog @ONLY)
  file(GLOB pages ${stage}/usr/share/man/*/*)
  execute_process(COMMAND gzip -9 -n -f ${documents}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
