from vitlab.cli import main

main()
