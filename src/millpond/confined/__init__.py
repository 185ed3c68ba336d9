"""What can make large values out of small ones, and the processes in which that is evaluated; deadlines."""
